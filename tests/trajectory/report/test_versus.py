"""Compare campaigns whose protocols, menus and confirmed winners differ in known ways."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tests.support.campaigns import installed
from tests.support.places import NIGHT
from tests.support.present import known
from trajectory.report.versus import Versus, compare_campaigns
from trajectory.statistics.intervals import student_t

JOURNAL = NIGHT / "trajectory.jsonl"
SHIFT = 0.05


def campaign(directory: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Path:
    """Copy the real night into a directory, with every row changed."""
    directory.mkdir()
    rows = [json.loads(line) for line in JOURNAL.read_text("utf-8").splitlines()]
    for row in rows:
        change(row)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "trajectory.jsonl").write_text(text, "utf-8")
    return directory


def winner() -> str:
    found = next(
        json.loads(x) for x in JOURNAL.read_text("utf-8").splitlines() if '"confirmed"' in x
    )
    return str(found["found"]["configs"][0]["config_hash"])


def worse(row: dict[str, Any], chosen: str, *, seeds: int = 0) -> None:
    """Make the winner's fresh runs worse by about SHIFT, and move their seeds."""
    if row["kind"] == "confirm" and row["config_hash"] == chosen:
        for text in row["trial"]["result"]["texts"]:
            text["val_bpb"] += SHIFT + 0.001 * (row["trial"]["seed"] % 3)
    if row["kind"] == "confirm":
        row["trial"]["seed"] += seeds
    if row["kind"] == "confirmed":
        row["found"]["seeds"] = [seed + seeds for seed in row["found"]["seeds"]]


def fresh(directory: Path, chosen: str) -> dict[int, float]:
    rows = map(json.loads, (directory / "trajectory.jsonl").read_text("utf-8").splitlines())
    return {
        row["trial"]["seed"]: row["trial"]["result"]["texts"][0]["val_bpb"]
        for row in rows
        if row["kind"] == "confirm" and row["config_hash"] == chosen
    }


def test_confirmed_winners_are_compared_on_common_seeds(tmp_path: Path) -> None:
    chosen = winner()
    a = campaign(tmp_path / "a")
    b = campaign(tmp_path / "b", lambda row: worse(row, chosen))
    found = compare_campaigns(a, b)
    ours, theirs = fresh(a, chosen), fresh(b, chosen)
    differences = [ours[seed] - theirs[seed] for seed in ours]
    half = student_t(0.975, len(differences) - 1) * stdev(differences) / math.sqrt(len(differences))
    assert found.comparable
    assert found.protocol == found.menu == ()
    assert found.gap is not None
    assert (found.gap.paired, found.gap.seeds) == (True, len(differences))
    assert found.gap.delta == pytest.approx(fmean(differences))
    assert found.gap.hi - found.gap.lo == pytest.approx(2 * half)
    assert found.gap.hi < 0
    back = known(compare_campaigns(b, a).gap)
    assert (back.lo, back.hi) == pytest.approx((-found.gap.hi, -found.gap.lo))


def test_winners_on_other_seeds_vary_independently(tmp_path: Path) -> None:
    chosen = winner()
    a = campaign(tmp_path / "a")
    b = campaign(tmp_path / "b", lambda row: worse(row, chosen, seeds=1000))
    gap = known(compare_campaigns(a, b).gap)
    assert not gap.paired
    means = [fmean(fresh(one, chosen).values()) for one in (a, b)]
    assert gap.delta == pytest.approx(means[0] - means[1])
    paired = known(
        compare_campaigns(a, campaign(tmp_path / "c", lambda row: worse(row, chosen))).gap
    )
    assert gap.hi - gap.lo > paired.hi - paired.lo


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"budget": {"amount": 61, "unit": "steps"}}, {"budget"}),
        ({"backend": "megatron"}, {"backend"}),
        ({"corpus": {"heldout_sha256": "0" * 64}}, {"held-out text"}),
        ({"measure": {"unit": "accuracy", "direction": "maximise"}}, {"measure"}),
    ],
    ids=["budget", "backend", "text", "measure"],
)
def test_other_protocols_forbid_it(tmp_path: Path, change: dict[str, Any], named: set[str]) -> None:
    def other(row: dict[str, Any]) -> None:
        if row["kind"] == "campaign":
            for name, value in change.items():
                row[name] = row[name] | value if name == "corpus" else value

    found = compare_campaigns(campaign(tmp_path / "a"), campaign(tmp_path / "b", other))
    assert not found.comparable
    assert found.gap is None
    assert {one.name for one in found.protocol} == named
    assert len(found.why_not) == len(named)


def test_a_menu_and_settings_may_differ(tmp_path: Path) -> None:
    def other(row: dict[str, Any]) -> None:
        if row["kind"] == "campaign":
            row["menu_toml"] = row["menu_toml"].replace("[knobs.lr]", "[knobs.rate]")
            row["z_keep"] += 1
        if row["kind"] in {"confirm", "confirmed"}:
            row.clear()
            row.update(kind="event", at="2026-01-01T00:00:00+00:00", event="note", why="")

    found = compare_campaigns(campaign(tmp_path / "a"), campaign(tmp_path / "b", other))
    menu = {one.name: (one.a is None, one.b is None) for one in found.menu}
    assert menu["knobs.lr"] == (False, True)
    assert menu["knobs.rate"] == (True, False)
    assert {one.name for one in found.settings} == {"z_keep"}
    assert found.comparable
    assert found.gap is None


@pytest.mark.slow
def test_the_command_and_the_report_show_the_comparison(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a"), campaign(tmp_path / "b")
    done = installed("diff", a, b, "--json")
    assert Versus.model_validate_json(done.stdout) == compare_campaigns(a, b)
    text = installed("diff", a, b).stdout
    assert compare_campaigns(a, b).conclusion in text
    empty = tmp_path / "empty"
    shutil.copytree(a, empty)
    (empty / "trajectory.jsonl").write_text("")
    refused = installed("diff", a, empty)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
