"""A verdict is spent in rounds, goes on where it was, and is told as far as rounds are whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoresearch.errors import SettingsError
from bench.searches.earlier_nights import earlier, misleading
from bench.simulator.__main__ import app
from bench.simulator.comparison import NightStore, Plan
from bench.simulator.searches import SEARCHES
from bench.simulator.verdict import Verdict, asked, markdown, places, spend_missing
from bench.simulator.worlds import Sources
from tests.support.worlds import RateWorld

CURVED = RateWorld(0.05, curves=True)


def verdict(path: Path, nights: int = 2) -> Verdict:
    """Two searches where runs leave no curves, and three where they do."""
    flat = RateWorld(0.05)
    flat.name = "flat"
    chosen = asked(["sampler", "uniform, no pruning"])
    return Verdict({"rate": [CURVED], "flat": [flat]}, chosen, Plan(nights, 4), NightStore(path))


def test_a_night_of_each_comes_before_the_next_of_any(tmp_path: Path) -> None:
    one = verdict(tmp_path / "n")
    missing = one.missing()
    assert [number for _, _, number in missing] == [0] * 5 + [1] * 5
    flat = [who for name, who, _ in missing if name == "flat"]
    assert flat == ["uniform", "sampler"] * 2, "without curves nothing is pruned"


def test_it_goes_on_where_it_was_and_tells_whole_rounds(tmp_path: Path) -> None:
    path, notes = tmp_path / "n", []
    begun = verdict(path)
    assert markdown(begun, "rate") == "rate: no round is whole yet"
    for cell in begun.missing()[:7]:
        begun.spend(*cell)
    resumed = verdict(path)
    assert len(resumed.missing()) == 3
    assert "rate, 1 paired night:" in markdown(resumed, "rate")
    assert 0 < resumed.left_s(resumed.missing()) < 60
    spend_missing(resumed, 0.0, notes.append)
    assert len(resumed.missing()) == 3, "no time was given"
    spend_missing(resumed, None, notes.append)
    assert resumed.missing() == []
    assert notes[-1].endswith("0.00 CPU-hours left")
    table = markdown(verdict(path), "rate")
    assert "rate, 2 paired nights:" in table
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert rows == ["search", "---", "uniform", "sampler", "uniform, no pruning"]


def test_differences_are_paired_and_at_equal_time(tmp_path: Path) -> None:
    one = verdict(tmp_path / "n", nights=3)
    spend_missing(one, None, lambda _: None)
    nights = one.told("flat")
    pairs = zip(nights["sampler"], nights["uniform"], strict=True)
    mean = sum(a.regret(4) - b.regret(4) for a, b in pairs) / 3
    (row,) = [line for line in markdown(one, "flat").splitlines() if line.startswith("| sampler")]
    assert row.split(" | ")[2].startswith(f"{1000 * mean:+.2f} ± ")


def test_worlds_that_cannot_be_had_are_left_out_and_said(tmp_path: Path) -> None:
    notes: list[str] = []
    nowhere = Sources(tmp_path / "none", (), tmp_path)
    assert list(places(["made-up", "step-law"], nowhere, notes.append)) == ["made-up"]
    assert "step-law is left out: no checkout of published runs" in notes[0]
    with pytest.raises(SettingsError, match="no world is left"):
        places(["step-law"], nowhere, notes.append)
    with pytest.raises(SettingsError, match="there is no world 'mars'"):
        places(["mars"], nowhere, notes.append)
    with pytest.raises(SettingsError, match="there is no search 'x'"):
        asked(["x"])


def test_without_names_all_are_asked_that_answer_in_time() -> None:
    chosen = asked(None)
    assert next(iter(chosen)) == "uniform"
    assert "SMAC" in SEARCHES
    assert "SMAC" not in chosen
    assert {"CatCMA", "trust region", "sampler, top-two", "16 in flight"} <= chosen.keys()
    assert "process, one length" not in chosen
    assert "process, one length" in asked(["process, one length"])


def test_the_command_tells_markdown_and_lists_searches(tmp_path: Path) -> None:
    kept = str(tmp_path / "n")
    runner, call = CliRunner(), ["verdict", "--world", "made-up", "--no-idle", "--nights", "1"]
    call += ["--iterations", "2", "--search", "sampler", "--nights-file", kept]
    none = runner.invoke(app, [*call, "--tables"])
    assert "made-up: no round is whole yet" in none.output
    spent = runner.invoke(app, call)
    assert spent.exit_code == 0, spent.output
    assert "2 of 2" in spent.output
    assert "| sampler |" in spent.output
    assert "night 0" not in runner.invoke(app, call).output, "they were kept"
    assert "CatCMA" in runner.invoke(app, ["searches", "--list"]).output


def test_a_prior_is_an_earlier_night_and_misleads_where_it_is_told_the_wrong_way_round() -> None:
    (right,), (wrong,) = (told(CURVED, 1) for told in (earlier, misleading))
    assert right.why_no_gains is None
    gains = [config.gain for config in right.configs]
    assert len(gains) > 10
    assert [config.gain for config in wrong.configs] == [-gain for gain in gains]
    assert earlier(CURVED, 1)[0].configs == right.configs
    assert earlier(CURVED, 2)[0].configs != right.configs
    found = SEARCHES["sampler, a prior"].night(CURVED, seed=1, iterations=2)
    assert found.stages[-1].iteration == 2
