"""Readers report a journal's confirmation; ranking and judging ignore it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.confirmed import confirmation
from tests.support.present import known
from tests.support.reports import findings, simulated
from tests.support.rows import write_journal
from trajectory.confirmed import latest_of
from trajectory.evidence import Evidence
from trajectory.formats.importing import import_campaign
from trajectory.formats.table import trials_table
from trajectory.live.follower import Follower
from trajectory.ranking import top
from trajectory.reading import Results
from trajectory.report.figures.time_and_energy import usage_of
from trajectory.report.report import render
from trajectory.rows import ConfirmedRow, ConfirmRow, Row

SEARCH = simulated(30)
EVIDENCE = Evidence(SEARCH)
BASELINE = EVIDENCE.configs[EVIDENCE.baseline_hash or ""].config
FINALISTS = {
    one.iter: one.config for one in top(EVIDENCE, 4) if one.config_hash != EVIDENCE.baseline_hash
}
MINUS = "\N{MINUS SIGN}"


def confirmed(gain: float = 0.3) -> tuple[list[Row], ConfirmedRow]:
    runs, end = confirmation(9_000, BASELINE, FINALISTS, gain=gain)
    return [*SEARCH, *runs, end], end


def test_it_counts_in_no_ranking_and_no_race() -> None:
    rows, _ = confirmed()
    assert vars(Evidence(rows)) == vars(EVIDENCE)


def test_it_is_among_the_results_and_no_measurement_of_the_search(tmp_path: Path) -> None:
    rows, end = confirmed()
    journal = tmp_path / "trajectory.jsonl"
    write_journal(journal, iter(rows))
    runs = [row for row in rows if isinstance(row, ConfirmRow)]
    results = Results(journal)
    assert results.newest(ConfirmRow) == runs[::-1]
    assert results.newest(ConfirmedRow) == [end]
    assert {row.trial.trial_id for row in runs} <= results.trial_ids
    assert results.measurements(BASELINE.config_hash) == [
        row.trial for row in reversed(SEARCH) if row.kind == "baseline"
    ]


def test_the_page_follows_it(tmp_path: Path) -> None:
    rows, end = confirmed()
    journal = tmp_path / "trajectory.jsonl"
    write_journal(journal, iter(rows[:-1]))
    follower = Follower(tmp_path)
    follower.poll()
    assert follower.status().headline.verdict == "claimed"
    assert follower.state.latest_confirmed() == {}
    write_journal(journal, iter(rows))
    follower.poll()
    assert follower.state.latest_confirmed() == latest_of([end.found])
    chosen = end.found.chosen
    headline = follower.status().headline
    assert (headline.iter, headline.delta) == (chosen.iter, known(chosen.headline).delta)


@pytest.mark.parametrize(("gain", "verdict"), [(0.3, ": confirmed."), (0.0, "<em>not</em> conf")])
def test_the_reports_headline_is_confirmed(gain: float, verdict: str, tmp_path: Path) -> None:
    rows, end = confirmed(gain)
    page = render(findings(tmp_path, rows), (), (), datetime.now(UTC))
    chosen = end.found.chosen
    assert chosen.headline is not None
    said = f"{chosen.headline.delta:+.4f}".replace("-", MINUS)
    lede = page.split('<p class="lede">')[1].split("</p>")[0]
    assert f"<b>{said}</b>" in lede
    assert verdict in lede
    assert "on text that no trial of the search scored" in lede
    assert f"claimed {-1.2 * gain:+.4f}".replace("-", MINUS) in lede
    assert page.count('<th class="n">fresh runs</th>') == 1


def test_the_report_counts_its_time_and_energy(tmp_path: Path) -> None:
    rows, _ = confirmed()
    metered = [
        row.model_copy(update={"energy_wh": 2.0}) if isinstance(row, ConfirmRow) else row
        for row in rows
    ]
    spent = usage_of(findings(tmp_path / "with", metered))
    without = usage_of(findings(tmp_path / "without", SEARCH))
    runs = sum(isinstance(row, ConfirmRow) for row in rows)
    assert spent.fresh_runs_s == pytest.approx(3.65 * runs)
    assert spent.total == without.total
    assert (spent.energy_wh or 0) - (without.energy_wh or 0) == pytest.approx(2.0 * runs)
    assert without.fresh_runs_s == 0


def test_other_tools_get_its_runs(tmp_path: Path) -> None:
    rows, _ = confirmed()
    journal = tmp_path / "given" / "trajectory.jsonl"
    journal.parent.mkdir()
    write_journal(journal, iter(rows))
    kinds = [line[1] for line in trials_table(rows).lines]
    assert kinds.count("confirm") == 2 * (1 + len(FINALISTS))
    import_campaign(journal, tmp_path / "taken")
    taken = Results(tmp_path / "taken" / "trajectory.jsonl")
    assert len(taken.newest(ConfirmedRow)) == 1
