"""Ranking another tool's configs."""

import math
from pathlib import Path

import pytest

from tests.support.foreign import HEADER, RESULTS_TSV, evaluated, single_knob_lines, write_jsonl
from tests.support.present import known
from trajectory.formats.loop_logs import read_single_knob, read_tsv
from trajectory.formats.source import Source, SourcePart
from trajectory.formats.standings import Standings


def single_knob_standings(tmp_path: Path, lines: list[object]) -> Standings:
    source = Source.read(write_jsonl(tmp_path / "t.jsonl", lines))
    return Standings.of(read_single_knob(source, SourcePart()).runs)


def test_repeats_of_a_config_are_runs_of_it_and_give_the_noise(tmp_path: Path) -> None:
    lines = [evaluated(1, "lr", 1e-3, 10.8), evaluated(2, "lr", 1e-3, 11.0)]
    standings = single_knob_standings(tmp_path, [HEADER, *lines])
    best = standings.top(1)[0]
    assert (best.n, best.mean_objective) == (2, pytest.approx(10.9))
    assert known(standings.noise).sigma == pytest.approx(math.sqrt(0.02))
    assert best.delta_vs_baseline == pytest.approx(10.9 - 10.9554)
    assert best.delta_stderr == pytest.approx(math.sqrt(0.02) * math.sqrt(1.5))


def test_a_lucky_run_is_shrunk_below_a_proven_config(tmp_path: Path) -> None:
    proven = [10.85, 10.89, 10.86, 10.88, 10.87, 10.84, 10.9, 10.87, 10.86, 10.88]
    lines: list[object] = [HEADER]
    lines += [evaluated(i, "d_model", 768, score) for i, score in enumerate(proven, start=1)]
    lines.append(evaluated(11, "n_head", 8, 10.862))
    lines += [evaluated(20 + i, "lr", 1e-4 * (1 + i), 10.885 + 0.004 * i) for i in range(10)]
    best, second = single_knob_standings(tmp_path, lines).top(2)
    assert (best.n, second.n) == (10, 1)
    assert best.mean_objective > second.mean_objective


def test_a_whole_night_has_one_line_per_config(tmp_path: Path) -> None:
    standings = single_knob_standings(tmp_path, [*single_knob_lines(50)])
    ranked = standings.top(100)
    assert len(ranked) == 11
    assert sum(entry.n for entry in ranked) == 51
    assert known(standings.noise).sigma == pytest.approx(0.0018 * 11, rel=0.4)
    assert ranked[0].entry.changes == {"d_model": 768}
    assert [entry.objective for entry in ranked] == sorted(entry.objective for entry in ranked)
    for entry in ranked:
        assert known(entry.objective_lo) < entry.objective < known(entry.objective_hi)


def test_commits_stand_for_configs_and_nothing_is_claimed_of_single_runs(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(RESULTS_TSV)
    standings = Standings.of(read_tsv(Source.read(path), SourcePart()).runs)
    ranked = standings.top(10)
    assert [standing.entry.name for standing in ranked] == ["b2c3d4e", "a1b2c3d", "c3d4e5f"]
    assert standings.noise is None
    assert ranked[0].delta_vs_baseline == pytest.approx(0.9932 - 0.9979)
    assert ranked[0].objective_lo is ranked[0].delta_stderr is None
    assert not ranked[0].beats_baseline
    crashed = next(one for one in standings.configs.values() if one.name == "d4e5f6g")
    assert crashed.n == 0
