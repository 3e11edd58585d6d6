"""The audit of a user's score finds its fault in small scripts, and nothing in sound ones."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent.commands.night.from_script import from_script
from agent.commands.night.propose import SCORE_IS_UNFIT, check
from agent.menu.files import load_menu
from agent.session.score_audit import ScoreAudit, static_findings
from autoresearch.errors import MenuError
from tests.support.present import known
from tests.support.scored_scripts import CASES, END, LAST, scored_script

FIRST = ("sound", "not seeded", "batch measured", "unknown word said maximised")
STATIC = {"direction", "data", "split", "best value"}
app = typer.Typer()
app.command("check")(check)
app.command("from-script")(from_script)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.slow, id=name)
        for name in CASES
    ],
)
def test_a_fault_is_found_and_a_sound_score_has_none(name: str, tmp_path: Path) -> None:
    changes, expected = CASES[name]
    found = list(ScoreAudit.of(str(scored_script(tmp_path, **changes))).findings())
    assert {(one.check, one.state) for one in found if one.state != "good"} == expected
    assert all((one.fix != "") == (one.state != "good") for one in found)


@pytest.mark.parametrize(
    "name", ["accuracy said minimised", "split drawn from the seed", "training loss", "best of all"]
)
def test_what_the_text_tells_needs_no_run(name: str, tmp_path: Path) -> None:
    changes, expected = CASES[name]
    path = scored_script(tmp_path, **changes)
    table = known(load_menu(str(path)).trainer)
    assert {(one.check, one.state) for one in static_findings(table, tmp_path)} == expected
    assert {check for check, _ in expected} <= STATIC


def test_the_command_ends_with_a_code_of_its_own_and_names_the_fix(tmp_path: Path) -> None:
    changes, _ = CASES["batch measured"]
    path = scored_script(tmp_path, **changes)
    result = CliRunner().invoke(app, ["check", "score", "--menu", str(path), "--json"])
    assert result.exit_code == SCORE_IS_UNFIT
    found = [json.loads(line) for line in result.stdout.splitlines()]
    (bad,) = (one for one in found if one["state"] == "bad")
    assert bad["check"] == "knob"
    assert "[constants] batch_size = 8.0" in bad["fix"]


def test_a_built_in_score_and_a_script_that_fails_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MenuError):
        ScoreAudit.of("cpu-tiny")
    broken = scored_script(tmp_path, script=((END, "raise SystemExit(4)"),))
    with pytest.raises(MenuError):
        list(ScoreAudit.of(str(broken)).findings())


def test_a_draft_says_what_is_wrong_with_its_score(tmp_path: Path) -> None:
    scored_script(tmp_path, script=((LAST, 'print(f"train loss {score:.6f}")'),))
    words = ["from-script", str(tmp_path / "train.py"), "-o", str(tmp_path / "own.toml"), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert [one["check"] for one in json.loads(result.stdout)["doubts"]] == ["data"]
