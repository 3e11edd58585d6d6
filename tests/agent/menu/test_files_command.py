import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import load_menu
from autoresearch.errors import MenuError

SPARK = load_menu("spark-354m")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return the path for a test's own menu, where no file exists yet."""
    return tmp_path / "own.toml"


def test_list_names_every_shipped_menu() -> None:
    listed = run_json("list")
    assert [(one["name"], len(one["knobs"])) for one in listed] == [
        ("cpu-modern", 22),
        ("cpu-tiny", 16),
        ("cpu-tiny-code", 27),
        ("llama-7b-ratios", 20),
        ("spark-354m", 12),
        ("spark-354m-code", 23),
        ("spark-modern", 19),
    ]
    assert listed[4]["sha256"] == SPARK.sha256


def test_show_json_is_complete() -> None:
    shown = run_json("show", "spark-354m")
    assert shown["sha256"] == SPARK.sha256
    assert shown["baseline"] == SPARK.baseline.canonical()
    assert shown["baseline_config_hash"] == SPARK.baseline.config_hash
    assert shown["knobs"]["n_head"]["choices"] == [4, 8, 16, 32]
    assert shown["constants"]["tie_embeddings"] is True
    assert shown["campaign"]["budget"] == "60 steps"
    assert [one["checked"] for one in shown["constraints"]] == [True] * 4


def test_a_constraint_that_a_clock_leaves_open_is_said_to_be_unchecked(own: Path) -> None:
    own.write_text(SPARK.toml.replace('"60 steps"', '"90 seconds"'), encoding="utf-8")
    checked = [one["checked"] for one in run_json("show", str(own))["constraints"]]
    assert checked == [True, True, False, True]


def test_text_in_a_menu_is_not_markup(own: Path) -> None:
    toml = SPARK.toml.replace('doc = "transformer blocks"', 'doc = "[red]blocks[/nope]"')
    own.write_text(toml, encoding="utf-8")
    assert "[red]blocks[/nope]" in run("show", str(own))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpu-tiny", "spark-354m"])
def test_validate_passes_the_shipped_menus_without_warning(name: str) -> None:
    report = run_json("validate", name)
    assert report["warnings"] == []
    assert report["sha256"] == load_menu(name).sha256


@pytest.mark.slow
def test_validate_warns_where_constraints_leave_almost_nothing(own: Path) -> None:
    narrow = '[[constraints]]\nexpr = "lr == 3e-4 and beta1 == 0.9 and n_layer == 24"\n[campaign]'
    own.write_text(SPARK.toml.replace("[campaign]", narrow), encoding="utf-8")
    report = run_json("validate", str(own))
    assert report["satisfied_share"] == 0
    assert len(report["warnings"]) == 1


@pytest.mark.slow
def test_validate_warns_where_the_defaults_stand_alone(own: Path) -> None:
    turned = ("lr", "beta1", "beta2", "weight_decay")
    knobs = "".join(
        f'[knobs.{name}]\ntype = "float"\nlow = 0.1\nhigh = 0.9\ndefault = 0.5\n' for name in turned
    )
    constants = "".join(
        f"{name} = {json.dumps(value)}\n"
        for name, value in SPARK.baseline.canonical().items()
        if name not in turned
    )
    # Either all four are at their defaults or all four are above them: no three changes lead from
    # one state to the other.
    expr = " or ".join(
        " and ".join(f"{name} {operator} 0.5" for name in turned) for operator in ("==", ">")
    )
    own.write_text(
        f'name = "island"\n{knobs}[constants]\n{constants}[[constraints]]\nexpr = "{expr}"\n',
        encoding="utf-8",
    )
    report = run_json("validate", str(own))
    assert report["satisfied_share"] == pytest.approx(1 / 16, abs=0.03)
    assert report["neighbour_satisfied_share"] == 0
    assert len(report["warnings"]) == 1


@pytest.mark.parametrize("command", ["show", "validate"])
def test_a_menu_that_cannot_be_used_is_an_error(command: str, own: Path) -> None:
    own.write_text(SPARK.toml.replace("low = 4", "low = 400"), encoding="utf-8")
    for path in (str(own), "nope"):
        result = CliRunner().invoke(app, [command, path])
        assert isinstance(result.exception, MenuError)
