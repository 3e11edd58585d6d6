"""Check how a change of code is shown: a small diff, and one line where a table has no room."""

from __future__ import annotations

import pytest

from autoresearch.words import brief, changes_text, code_diff
from tests.support.configs import config
from tests.support.rows import iteration_row
from trainer.spec import CommandConfig, code_diffs
from trajectory.live.brief import brief_of
from trajectory.report.details import changes

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
    ("value", "shown"),
    [("", "{built in}"), (CUBE, "{F.relu(x) ** 3}"), ("x = 1", "{x = 1}")],
)
def test_short_code_fits_on_a_line(value: str, shown: str) -> None:
    assert brief(KEY, value) == shown
    assert changes_text({KEY: value, "lr": 0.1}) == f"{KEY}={shown} lr=0.1"
    assert brief("note", value) == value


def test_long_code_is_named_by_its_length_and_hash() -> None:
    long = CUBE + "\n    # more" * 5
    assert str(brief(KEY, long)).startswith("{7 lines, ")
    assert brief(KEY, long) != brief(KEY, long + " ")


def test_a_diff_leaves_out_what_is_far_from_a_change() -> None:
    lines = [f"a{n}" for n in range(20)]
    diff = code_diff("\n".join(lines), "\n".join([*lines[:10], "new", *lines[10:]]))
    assert diff == [" a8", " a9", "+new", " a10", " a11"]


def test_report_and_page_show_a_change_of_code() -> None:
    before, after = config(activation="gelu"), config(activation="gelu", **{KEY: CUBE})
    row = iteration_row(3, after, changes={KEY: CUBE})
    (change,) = changes(row, before.said)
    assert (change.name, change.before) == (KEY, "")
    assert change.after.splitlines()[1:] == ["-    return F.gelu(x)", "+    return F.relu(x) ** 3"]
    assert brief_of(row).changes == {KEY: "{F.relu(x) ** 3}"}
