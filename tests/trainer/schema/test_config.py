"""Test configs: their hash, their checks, and differences of their code."""

from typing import Any

import pytest

from autoresearch.errors import SpecError
from autoresearch.ideas import ideas
from autoresearch.words import brief, changes_text, code_diff
from tests.support.configs import config
from tests.support.rows import iteration_row
from trainer.code import normalize, slot_of
from trainer.schema import CommandConfig, code_diffs, difference
from trajectory.live.brief import brief_of
from trajectory.report.details import changes

LATER: dict[str, Any] = {
    "qk_norm": True,
    "norm_place": "output",
    "rope_base": 500_000,
    "init_scale": 0.5,
    "schedule": "wsd",
    "decay_share": 0.1,
    "optimizer": "muon",
    "muon_lr_ratio": 2.0,
    "mup_base_width": 64,
    "mup_base_depth": 2,
}
"""Fields with a default, each with another value."""


def test_hashes_of_older_configs_stand() -> None:
    """The expected hashes are those of version 0.2.0."""
    assert (
        config().config_hash == "a18c54706faf6fad93cfe2add3038a9300dd5e93fa0d8e229527b47d6d23e9d3"
    )
    assert (
        config(n_kv_head=2, activation="swiglu").config_hash
        == "dbb45af11e2f498823b14b9e139c46a8994ad1e656076f123780141df25712ad"
    )


@pytest.mark.parametrize("name", LATER)
def test_a_later_field_is_said_only_where_it_is_set(name: str) -> None:
    plain, changed = config(), config(**{name: LATER[name]})
    assert name not in plain.canonical()
    assert changed.canonical()[name] == LATER[name]
    assert changed.config_hash != plain.config_hash
    default = getattr(plain, name)
    assert config(**{name: default}) == plain
    assert difference(changed, plain) == {name: LATER[name]}
    assert difference(plain, changed) == ({} if default is None else {name: default})
    assert difference(changed, changed) == {}
    assert difference(plain, None) == plain.canonical()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation", "relu"),
        ("qk_norm", 1),
        ("norm_place", "post"),
        ("rope_base", 0),
        ("init_scale", -1),
        ("schedule", "constant"),
        ("decay_share", 0),
        ("decay_share", 1.5),
        ("mup_base_width", 0),
        ("mup_base_depth", 1.5),
    ],
)
def test_no_other_value_is_taken(name: str, value: object) -> None:
    with pytest.raises(SpecError, match=name):
        config(**{name: value})


KEY = "code.activation"
CUBE = "def activation(x):\n    return F.relu(x) ** 3"


def test_a_function_is_compared_with_what_is_built_in() -> None:
    before, after = config(activation="gelu"), config(activation="gelu", **{KEY: CUBE})
    assert code_diffs(after, before.said) == {
        KEY: [" def activation(x):", "-    return F.gelu(x)", "+    return F.relu(x) ** 3"]
    }
    assert code_diffs(before, after.said)[KEY][-1] == "+    return F.gelu(x)"
    assert code_diffs(after, after.said) == code_diffs(before, before.said) == {}


def test_code_of_a_script_is_compared_as_it_is() -> None:
    before = CommandConfig(values={"lr": 1, "code.act": "x = 1"})
    after = CommandConfig(values={"lr": 2, "code.act": "x = 2"})
    assert code_diffs(after, before.said) == {"code.act": ["-x = 1", "+x = 2"]}


@pytest.mark.parametrize(
    ("value", "shown"), [("", "{built in}"), (CUBE, "{F.relu(x) ** 3}"), ("x = 1", "{x = 1}")]
)
def test_short_code_fits_on_a_line(value: str, shown: str) -> None:
    assert brief(KEY, value) == shown
    assert changes_text({KEY: value, "lr": 0.1}) == f"{KEY}={shown} lr=0.1"
    assert brief("note", value) == value


def test_long_code_is_named_by_its_length_and_hash() -> None:
    long = CUBE + "\n    # more" * 5
    assert str(brief(KEY, long)).startswith("{7 lines, ")
    assert brief(KEY, long) != brief(KEY, long + " ")


def test_a_published_idea_has_its_name() -> None:
    adan = next(one for one in ideas() if one.name == "adan")
    value = normalize(slot_of(adan.slot), adan.code)
    assert value != adan.code
    assert brief(f"code.{adan.slot}", value) == "{adan}"
    assert changes_text({f"code.{adan.slot}": value}) == f"code.{adan.slot}={{adan}}"


def test_a_diff_leaves_out_what_is_far_from_a_change() -> None:
    lines = [f"a{n}" for n in range(20)]
    diff = code_diff("\n".join(lines), "\n".join([*lines[:10], "new", *lines[10:]]))
    assert diff == [" a8", " a9", "+new", " a10", " a11"]


def test_report_and_page_show_a_change_of_code() -> None:
    before, after = config(activation="gelu"), config(activation="gelu", **{KEY: CUBE})
    row = iteration_row(3, after, changes={KEY: CUBE})
    (change,) = changes(row, before.said)
    assert (change["name"], change["before"]) == (KEY, "")
    assert change["after"].splitlines()[1:] == [
        "-    return F.gelu(x)",
        "+    return F.relu(x) ** 3",
    ]
    assert brief_of(row).changes == {KEY: "{F.relu(x) ** 3}"}
