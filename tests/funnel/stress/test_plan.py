"""Test the plan and the plot of the long runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from autoresearch.errors import CampaignError, MachineryError
from funnel.stress.experiment import StressPlan
from funnel.stress.plot import Panel, Run, save_plot
from tests.support.curves import noisy, points, power_law
from tests.support.rows import Simulator
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.ranking import Ranked


@pytest.fixture(scope="module")
def ranked() -> list[Ranked]:
    return ranking.top(Evidence(Simulator(1).rows(24)), 1000)


def plan(
    ranked: list[Ranked],
    top: int = 3,
    spread: int = 0,
    baseline: str | None = "",
    first: int | None = None,
) -> StressPlan:
    if baseline == "":
        baseline = next(entry.config_hash for entry in ranked if entry.iter == 0)
    return StressPlan.of(
        ranked,
        top=top,
        first=first,
        spread=spread,
        baseline_hash=baseline,
        steps=1000,
        seeds=(900, 901),
    )


def test_the_best_and_the_baseline(ranked: list[Ranked]) -> None:
    configs = plan(ranked).configs
    assert [(e.rank, e.purpose) for e in configs[:3]] == [(i, "candidate") for i in (1, 2, 3)]
    assert [e.config_hash for e in configs[:3]] == [r.config_hash for r in ranked[:3]]
    (baseline,) = configs[3:]
    assert baseline.purpose == "baseline"
    assert ranked[baseline.rank - 1].iter == 0
    assert len(plan(ranked, baseline=None).configs) == 3
    among = plan(ranked, baseline=ranked[1].config_hash)
    assert [e.purpose for e in among.configs] == ["candidate"] * 3


@pytest.mark.parametrize("count", [2, 5, 9])
def test_the_spread_is_even_and_holds_both_ends(ranked: list[Ranked], count: int) -> None:
    found = plan(ranked, spread=count)
    ranks = [r.config_hash for r in ranked]
    places = [ranks.index(name) for name in found.spread]
    assert len(places) == count
    assert (places[0], places[-1]) == (0, len(ranked) - 1)
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
    assert len({e.config_hash for e in found.configs}) == len(found.configs)
    purposes = [config.purpose for config in found.configs]
    assert purposes == sorted(purposes, key=("candidate", "baseline", "spread").index)
    every = plan(ranked, top=1, spread=1000)
    assert len(every.configs) == len(every.spread) == len(ranked)


def test_more_may_get_the_first_seed_than_go_on(ranked: list[Ranked]) -> None:
    found = plan(ranked, top=2, first=6)
    assert found.narrows
    assert found.carried == 2
    assert found.candidates == tuple(entry.config_hash for entry in ranked[:6])
    for first in (1, 3):
        assert plan(ranked, first=first) == plan(ranked)
    assert not plan(ranked).narrows


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CampaignError):
        plan([], baseline=None)


def panel(title: str, *, step: int | None = None) -> Panel:
    loss = noisy(power_law(), 200, 0.1, seed=len(title))
    if step is not None:
        loss[step:] += 50.0
    run = Run(points(loss), "survives" if step is None else "diverges", step)
    return Panel(title, "3.1 bpb", (run, run))


def test_both_formats_and_every_word(tmp_path: Path) -> None:
    panels = [panel("candidate, rank 1"), panel("candidate [b], rank $2$", step=120)]
    png, svg = save_plot(panels, panel("baseline, rank 9"), tmp_path / "stress-200")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stress-200.png", "stress-200.svg"]
    with Image.open(png) as image:
        width, height = image.size
    assert width >= 1400 and height >= 400
    text = svg.read_text("utf-8")
    for words in ("rank $2$", "baseline, rank 9", "where it happened", "nats per token"):
        assert words in text


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MachineryError):
        save_plot([panel("candidate")], None, tmp_path / "missing" / "x")
    (tmp_path / "x.png").mkdir()
    with pytest.raises(MachineryError):
        save_plot([panel("candidate")], None, tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]


def test_the_same_curves_give_the_same_picture_and_none_an_empty_panel(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_plot([panel("candidate")], None, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    empty = Panel("candidate", "failed", (Run([], "failed", None),))
    assert all(path.stat().st_size for path in save_plot([empty], None, tmp_path / "x"))
