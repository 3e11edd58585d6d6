"""Check that docs/proof.md and README show what ``python -m bench.proof`` prints."""

import random
from statistics import fmean

import pytest

from bench.judge_worlds import Recipe, recorded, recorded_runs
from bench.proof import Loop, majority, rerun, tables
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "proof.md").read_text("utf-8")


def test_the_page_shows_what_the_published_rules_do() -> None:
    for lines in tables(with_own=False):
        assert len(lines) == 9
        for line in lines:
            assert f"\n{line}\n" in PAGE


@pytest.mark.slow
def test_the_page_shows_the_printed_tables() -> None:
    for lines in tables(with_own=True):
        assert "\n".join(["", *lines, ""]) in PAGE


def test_the_readme_shows_a_part_of_the_page() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    first = readme[readme.index("\n| ") :].strip().split("\n\n")[0]
    null, gains, _ = (
        {line.split(" | ")[0]: line.strip("| ").split(" | ")[1:] for line in lines}
        for lines in (
            table.split("\n") for table in PAGE.split("\n\n") if table.startswith("| rule | ")
        )
        if len(lines) == 11
    )
    rows = [line.strip("| ").split(" | ") for line in first.split("\n")[2:]]
    assert len(rows) >= 6
    for name, *cells in rows:
        assert cells == [*null[f"| {name}"][3:], gains[f"| {name}"][2]]


def loop(*scores: float) -> tuple[Loop, Recipe]:
    """Return a loop whose baseline scores 1 on every seed, and an idea with these scores."""
    world = recorded(0, gains=True)
    baseline = Recipe(0.0, deviates=dict.fromkeys(range(6), 1.0))
    started = Loop(world, random.Random(0), baseline, claimed=1.0)
    return started, Recipe(0.0, deviates=dict(enumerate(scores)))


def test_a_small_gain_runs_again_and_a_large_one_does_not() -> None:
    for gain, again, runs in ((0.2, 0.6, 5), (0.2, 1.2, 5), (3.0, 0.0, 4)):
        started, _ = loop()
        started.seen, started.runs = [1.0, 2.0, 2.0], 3
        idea = Recipe(0.0, deviates={3: 1.0 - gain, 4: again})
        kept = rerun(started, idea)
        assert started.runs == runs
        expected = 1.0 - gain if runs == 4 else again
        assert kept == (expected if expected < 1.0 else None)


@pytest.mark.parametrize(
    ("seeds", "scores", "is_kept"),
    [
        (2, (0.9, 1.0), False),
        (2, (0.9, 0.9), True),
        (3, (0.9, 0.9, 9.0), True),
        (3, (0, 1, 1), False),
    ],
)
def test_a_majority_is_more_than_half(seeds: int, scores: tuple[float, ...], is_kept: bool) -> None:
    assert (majority(seeds)(*loop(*scores)) is not None) == is_kept


def test_the_recorded_trials_without_gains_differ_by_noise_alone() -> None:
    world = recorded(3, gains=False)
    ideas = list(world.ideas)
    assert len(ideas) == len(recorded_runs()) - 1 == 67
    for idea in (world.begin(), *ideas):
        assert idea.bpb == world.baseline.bpb
        assert fmean(idea.deviates.values()) == pytest.approx(0, abs=1e-12)
