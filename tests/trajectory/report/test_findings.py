"""The figures' numbers agree with the rows they come from."""

import math
from pathlib import Path
from statistics import fmean

import pytest

from agent.search.stopping import Work
from autoresearch.errors import JournalError
from funnel.cost.rates import Rates
from tests.support.configs import config
from tests.support.curves import points
from tests.support.present import known
from tests.support.reports import KNOBS, findings, simulated, stress_rows, with_menu
from tests.support.rows import (
    at,
    baseline_row,
    campaign_row,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from trainer.schema import CurvePoint
from trajectory.evidence import Evidence
from trajectory.proposals import ProposerRecord
from trajectory.ranking import Noise, top
from trajectory.report.figures.coverage import coverage
from trajectory.report.figures.curves import fidelity_test, learning_curves, long_runs
from trajectory.report.figures.knob_effects import knob_effects
from trajectory.report.figures.progress import believed_steps, points_of
from trajectory.report.figures.time_and_energy import usage_of
from trajectory.report.findings import Findings
from trajectory.report.iterations import MAX_POINTS, merged
from trajectory.report.ledger import Proposers, read_ledger
from trajectory.rows import BaselineRow, EventRow, IterationRow, Row
from trajectory.statistics.intervals import student_t


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return simulated(120, seed=3)


@pytest.fixture(scope="module")
def found(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings(tmp_path_factory.mktemp("campaign"), rows)


@pytest.fixture(scope="module")
def iterations(rows: list[Row]) -> list[IterationRow]:
    return [row for row in rows if isinstance(row, IterationRow)]


def test_every_iteration_is_a_point_with_the_interval_of_its_runs(
    found: Findings, rows: list[Row], iterations: list[IterationRow]
) -> None:
    noise = known(Noise.of(Evidence(rows)))
    assert [point.iter for point in points_of(found)] == [row.iter for row in iterations]
    for point, row in zip(points_of(found), iterations, strict=True):
        if row.decision.estimate_objective is None:
            assert point.score is None
            assert point.outcome == ("failed" if row.trials else "refused")
            continue
        assert point.score is not None
        half = student_t(0.975, noise.dof) * noise.sigma / math.sqrt(row.decision.pairs)
        assert point.score.value == row.decision.estimate_objective
        assert point.score.hi == pytest.approx(row.decision.estimate_objective + half)
        assert point.outcome == row.decision.action


def test_every_estimate_is_that_of_top_not_the_lucky_score(
    found: Findings, rows: list[Row], iterations: list[IterationRow]
) -> None:
    ranked = top(Evidence(rows), 10_000)
    posterior = {entry.config_hash: entry.objective for entry in ranked}
    assert [b.entry.objective for b in found.best] == [e.objective for e in ranked[:10]]
    assert found.best[0].difference["lr"] == (1e-3, ranked[0].config.lr)
    baseline, line = known(found.baseline), next(entry for entry in ranked if entry.iter == 0)
    ends = (line.objective, line.objective_lo, line.objective_hi)
    assert (baseline.value, baseline.lo, baseline.hi) == ends
    kept = {row.iter: row for row in iterations if row.decision.action == "keep"}
    steps, reigned = believed_steps(found), [one.config_hash for one in found.reigns]
    assert [first for first, _ in steps] == [0, *sorted(number for number, _ in steps[1:])]
    assert reigned[1:] == [kept[first].config_hash for first, _ in steps[1:]]
    assert [believed for _, believed in steps] == [posterior[name] for name in reigned]
    others = {row.config_hash or "" for row in kept.values()} - set(reigned)
    assert others, "not each came to reign"
    assert all(found.believed[name] == posterior[name] for name in others)


def test_the_parts_are_the_wall_time(found: Findings, iterations: list[IterationRow]) -> None:
    for iteration, row in zip(found.iterations, iterations, strict=True):
        trials_s = sum(trial.wall_s for trial in row.trials)
        assert iteration.spent.total == pytest.approx(max(row.wall_s, trials_s))
        lost = sum(t.wall_s for t in row.trials if t.result.status != "ok")
        assert iteration.spent.failed == pytest.approx(lost)
    calibration = 5 * 3.65
    spending = usage_of(found)
    total = calibration + sum(iteration.spent.total for iteration in found.iterations)
    assert spending.total.total == pytest.approx(total)


def test_trials_side_by_side_are_one_time_at_work(tmp_path: Path) -> None:
    one, other = config(lr=0.002), config(lr=0.003)
    rows: list[Row] = [*with_menu([campaign_row()]), *(baseline_row(n, 4.3, n) for n in range(2))]
    for number, of in enumerate((one, other), start=1):
        row = iteration_row(number, of, (trial(8 + number, of, 0, ok(4.2)),))
        at = f"2026-01-06T00:00:{number:02d}.000+00:00"
        rows.append(row.model_copy(update={"at": at, "wall_s": 30.0, "lanes": 2}))
    spending = usage_of(findings(tmp_path, rows))
    work = Work.of(rows)
    assert spending.active_s == pytest.approx(work.hours * 3600)
    calibration = sum(row.trial.wall_s for row in rows if isinstance(row, BaselineRow))
    assert spending.active_s == pytest.approx(calibration + 31)


def metered(energy_wh: float | None) -> list[Row]:
    candidate = config(lr=0.002)
    row = iteration_row(1, candidate, (trial(9, candidate, 0, ok(4.2)),))
    return [
        *with_menu([campaign_row()]),
        *(baseline_row(seed, 4.3, seed) for seed in range(2)),
        row.model_copy(update={"energy_wh": energy_wh}),
    ]


def test_energy_costs_its_price_and_is_not_claimed_without_a_meter(tmp_path: Path) -> None:
    spending = usage_of(findings(tmp_path, metered(2500.0), rates=Rates(kwh_usd=0.2)))
    assert spending.energy_wh == 2500
    assert spending.cost_usd == pytest.approx(0.5)
    assert spending.bill.usd_per_kwh == 0.2
    assert spending.bill.electricity_usd > 0.5, "the baselines' draw is supposed, and in the bill"
    assert spending.unmetered == 0
    unmetered = usage_of(findings(tmp_path, metered(None)))
    assert (unmetered.energy_wh, unmetered.cost_usd, unmetered.unmetered) == (None, None, 1)


def test_a_knobs_values_have_the_mean_of_their_configs(found: Findings, rows: list[Row]) -> None:
    evidence = Evidence(rows)
    effects = knob_effects(found).values
    domain = KNOBS[0].domain
    measured = [entry for entry in evidence.configs.values() if entry.n]
    for place, value in enumerate(effects["lr"]):
        means = [one.mean for one in measured if domain.place(one.config.lr) == place]
        assert value.score.n == len(means)
        assert value.score.value == pytest.approx(fmean(means))
    assert sum(value.is_default for value in effects["lr"]) == 1
    assert len(effects["activation"]) == 1, "the knob was never moved"


def test_coverage_counts_configs_and_proposals(
    found: Findings, iterations: list[IterationRow]
) -> None:
    lr, _, n_layer, *_ = coverage(found).values
    trained = {row.config_hash for row in iterations if row.trials} | {config().config_hash}
    assert sum(lr.configs) == len(trained)
    assert lr.proposals == 120
    assert lr.kept == sum(row.decision.action == "keep" for row in iterations)
    assert n_layer.touched == 1
    assert n_layer.proposals == 0
    refusals = sum(not row.verdict.allowed for row in iterations)
    by_models = sum(
        not attempt.verdict.allowed
        for row in iterations
        for attempt in row.proposer.attempts
        if attempt.verdict
    )
    assert found.stops.refusals["range"] == refusals
    assert found.stops.refusals["novelty"] == by_models == found.stops.repeats
    lost = [t for row in iterations for t in row.trials if t.result.status != "ok"]
    assert found.stops.failures["nonfinite"] == len(lost)
    assert found.stops.trials == 5 + sum(len(row.trials) for row in iterations)


def test_proposers_have_their_share(found: Findings, iterations: list[IterationRow]) -> None:
    proposers = known(Proposers.of(found.ledger))
    by_kind = {one.kind: one for one in proposers.kinds}
    assert set(by_kind) == {"sampler", "llm"}
    for kind, one in by_kind.items():
        mine = [row for row in iterations if row.proposer.kind == kind]
        kept = sum(row.decision.action == "keep" for row in mine)
        assert one.share.value == len(mine) / 120
        assert one.hit_rate is not None
        assert one.hit_rate.n == one.iterations == len(mine)
        assert one.hit_rate.value == kept / len(mine)
        assert one.measured == sum(row.decision.estimate_objective is not None for row in mine)
    model = by_kind["llm"]
    assert model.record.replies == 2 * model.iterations
    assert model.refused_replies == model.tried_before == model.iterations
    assert model.work.prompt_tokens == 3100 * model.record.replies
    shares = [one.share_of_keeps.value for one in proposers.kinds if one.share_of_keeps]
    assert sum(shares) == pytest.approx(1)


def test_stand_ins_pauses_and_interruptions_are_counted(tmp_path: Path) -> None:
    row = iteration_row(1, None, proposer=ProposerRecord(kind="sampler", fallback="it was down"))
    events: list[Row] = [
        EventRow(at=at(50), event="paused", why="a file"),
        EventRow(at=at(51), event="interrupted", why="a power cut"),
    ]
    found = findings(tmp_path, [*metered(None)[:3], row, *events])
    proposers = known(Proposers.of(found.ledger))
    stand_in, model = proposers.kinds
    assert stand_in.work.fallbacks == 1
    assert (model.kind, model.record.assigned, model.iterations, model.hit_rate) == (
        "llm",
        1,
        0,
        None,
    )
    assert (found.about.pauses, found.about.interruptions) == (1, 1)
    spending = usage_of(found)
    assert spending.elapsed_s == 7 * 51


def test_curves_are_averaged_over_seeds_on_the_steps_they_share() -> None:
    found = known(merged("hash", [points([5.0, 4.0, 3.0]), points([7.0, 6.0]), []]))
    assert (found.step, found.loss, found.seeds) == ((1, 2), (6.0, 5.0), 2)
    assert merged("hash", [[], []]) is None


def test_long_curves_are_thinned_smoothed_and_keep_their_end() -> None:
    found = known(merged("hash", [points([5 - i / 1000 for i in range(3999)])]))
    assert len(found.step) <= MAX_POINTS
    assert found.step[-1] == 3999
    assert found.window == 199
    last = [5 - i / 1000 for i in range(3999)][-199:]
    assert found.loss[-1] == pytest.approx(fmean(last))


def test_the_best_curves_are_those_of_measured_trials(tmp_path: Path, rows: list[Row]) -> None:
    asked: list[str] = []

    def read(trial_id: str) -> list[CurvePoint]:
        asked.append(trial_id)
        return points([5.0, 4.0])

    found = findings(tmp_path, rows, read)
    evidence = Evidence(rows)
    curves = known(learning_curves(found)).values
    names = [f"iteration {best.entry.iter}" for best in found.best if not best.is_baseline][:5]
    assert [name for name, _ in curves] == names
    for _, one in curves:
        trials = evidence.configs[one.config_hash].trial_ids.values()
        assert one.seeds == len(trials)
        assert set(trials) <= set(asked)


def test_long_runs_have_verdicts_and_test_the_ranking(tmp_path: Path, rows: list[Row]) -> None:
    found = findings(tmp_path, stress_rows(rows), lambda _: points([5.0, 3.0]))
    runs, test = known(long_runs(found)).values, known(fidelity_test(found))
    assert [run.first.rank for run in runs] == [1, 2, 3, 4, 5, 6]
    assert [run.runs.verdict.outcome for run in runs] == ["survives"] * 5 + ["diverges"]
    assert {len(run.runs.rows) for run in runs} == {2}
    assert test.n == 6
    assert test.fidelity is not None
    assert test.pairs[0].long == runs[0].standing.objective


def test_an_empty_journal_is_refused_by_name(tmp_path: Path) -> None:
    journal = tmp_path / "trajectory.jsonl"
    write_journal(journal, iter(()))
    with pytest.raises(JournalError):
        read_ledger(journal)
