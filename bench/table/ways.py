"""``python -m bench.table.ways``: what a short run's cost can buy, by the table's long runs.

``calibrate --fidelity`` with its configs and their long runs taken from the table, so that of every
config the short runs alone are trained, in a campaign of its own: other seeds than any long run's,
the same ways, the same conclusion. Stopped, the same command goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.calibration.plan import CalibrationPlan, Planned
from agent.search.calibration.runs import Calibration
from agent.search.confirm.plan import FreshTexts
from agent.workbench.calibrating import CalibrationDisplay
from agent.workbench.campaign_run import chosen_settings
from agent.workbench.sitting import Sitting, interruptible
from bench.command import run
from bench.simulator.idle import be_idle
from bench.table.plan import LONG_STEPS
from bench.table.store import TableTrial, read_published
from trainer.spec import AnyConfig, Config, TrialOk, gpt
from trajectory.calibrated import Calibrated, CalibrationRun, Correlation
from trajectory.rows import CalibrationRow, TrialRecord
from trajectory.statistics.bootstrap import Resampled, interval
from trajectory.statistics.fidelity import mid_ranks

MENU = "cpu-tiny"
LEANING = ("lr", "d_model")
"""Knobs that the errors of a short run's order are held against."""


@dataclass(frozen=True, slots=True)
class LongRuns:
    """A config of the table with its long runs."""

    config: Config
    trials: tuple[TableTrial, ...]
    """By seed."""

    def score(self) -> float:
        """Of the first of them."""
        assert self.trials[0].val_bpb is not None
        return self.trials[0].val_bpb

    @classmethod
    def of_table(cls, trials: Sequence[TableTrial]) -> list[LongRuns]:
        """All that were trained long, in an order that has nothing to do with their scores, so that
        any first part of them is spread as all of them are."""
        menu = load_menu(MENU)
        long: dict[str, list[TableTrial]] = {}
        for trial in sorted(trials, key=lambda trial: trial.seed):
            if trial.steps == LONG_STEPS and trial.val_bpb is not None:
                long.setdefault(trial.config_hash, []).append(trial)
        order = sorted(long, key=lambda one: hashlib.sha256(one.encode()).digest())
        knobs = [json.loads(long[one][0].knobs) for one in order]
        configs = [gpt(menu.apply(menu.baseline, values)) for values in knobs]
        return [cls(config, tuple(long[one])) for one, config in zip(order, configs, strict=True)]


@dataclass(frozen=True)
class TablePlan(CalibrationPlan):
    """The table's configs one after another; their long runs are there."""

    known: tuple[LongRuns, ...] = ()
    lengths: bool = True
    """Whether runs of two, four and eight times the length are trained as well."""

    def following(self, known: Sequence[tuple[AnyConfig, float]]) -> AnyConfig:
        return self.known[len(known)].config

    def runs(self, config: AnyConfig) -> Iterator[Planned]:
        """As of any calibration, the long runs on the table's seeds."""
        seeds = (trial.seed for trial in self._by_hash[config.config_hash].trials)
        for one in super().runs(config):
            yield replace(one, seed=next(seeds)) if one.kind == "long" else one

    @cached_property
    def longer(self) -> list[int]:
        return super().longer if self.lengths else []

    def rows(self) -> Iterator[CalibrationRow]:
        """The table's long runs, as a journal would have them."""
        for one in self.known:
            long = [planned for planned in self.runs(one.config) if planned.kind == "long"]
            for planned, trial in zip(long, one.trials[: self.long_seeds], strict=True):
                yield CalibrationRow(
                    at="",
                    run=planned.run,
                    config=one.config,
                    config_hash=trial.config_hash,
                    trial=TrialRecord(
                        trial_id=f"table-{trial.config_hash[:12]}-{trial.seed}",
                        role="calibration",
                        config_hash=trial.config_hash,
                        seed=trial.seed,
                        result=_result(trial),
                        wall_s=trial.train_s or 0.0,
                    ),
                )

    @cached_property
    def _by_hash(self) -> dict[str, LongRuns]:
        return {one.config.config_hash: one for one in self.known}


def _result(trial: TableTrial) -> TrialOk:
    """What the table has of a trial. Its score alone is read; all else is 1."""
    assert trial.val_bpb is not None, f"{trial.config_hash} has no long score"
    return TrialOk(
        val_bpb=trial.val_bpb,
        val_bits_per_token=1.0,
        val_bytes=1,
        val_tokens=1,
        train_loss_first=trial.loss[0],
        train_loss_last=trial.loss[-1],
        steps=trial.steps,
        tokens=1,
        params=trial.params or 0,
        step_ms=1.0,
        tokens_per_s=1.0,
        train_s=trial.train_s or 0.0,
        eval_s=0.0,
        setup_s=0.0,
        peak_mem_gib=0.0,
        backend="native",
        device=trial.cpu,
        precision="fp32",
    )


class TableCalibration(Calibration):
    """A calibration whose long runs are known; they are in no journal of its own."""

    def __post_init__(self) -> None:
        Calibration.__post_init__(self)
        plan = self.plan
        assert isinstance(plan, TablePlan)
        for row in plan.rows():
            self._rows[row.config_hash, row.trial.seed, row.run] = row


def main(
    configs: Annotated[int | None, typer.Option(min=8, help="The first so many.")] = None,
    best: Annotated[int | None, typer.Option(min=8, help="The best so many, by long runs.")] = None,
    lengths: Annotated[bool, typer.Option(help="Train two, four and eight times as long.")] = True,
    lanes: Annotated[int, typer.Option(min=1, help="Trials at a time, of one thread each.")] = 2,
    work: Annotated[Path, typer.Option(help="The campaign's directory.")] = Path("runs/ways"),
    idle: Annotated[bool, typer.Option(help="Only what nobody else wants of the machine.")] = True,
) -> None:
    """Every short run that is missing, then the table of ways as Markdown."""
    if idle:
        be_idle()
    known = LongRuns.of_table(read_published())[:configs]
    if best:
        known = sorted(known, key=LongRuns.score)[:best]
    chosen = {"menu": MENU, "threads": 1, "lanes": lanes, "trial_wall_s": 3600.0}
    console = Console(stderr=True)
    settings, menu = chosen_settings(work, chosen, console)
    with (
        interruptible(console),
        Sitting.opened(work, settings, menu, console, allow_unsandboxed=False) as sitting,
    ):
        sitting.greet()
        plan = TablePlan(
            sitting.campaign,
            FreshTexts.of(sitting.campaign, ()),
            configs=len(known),
            long_steps=LONG_STEPS,
            long_seeds=min(len(one.trials) for one in known),
            known=tuple(known),
            lengths=lengths,
        )
        display = CalibrationDisplay(console, plan)
        runner = sitting.runner(sitting.campaign.trial_spec, display)
        calibration = TableCalibration(plan, runner, display, sitting.stop, sitting.sampler)
        found = calibration.run()
    typer.echo("\n".join([*markdown(found), "", *leanings(calibration.done(), known)]))


def markdown(found: Calibrated) -> Iterator[str]:
    """A row a way, as docs/fidelity.md has them."""
    yield found.headline
    yield ""
    heads = ["cost", "Spearman", "Kendall", "gain in Spearman"]
    heads += [f"Spearman of the best {found.best_n}", "forgone, bpb"]
    yield f"| way | {' | '.join(heads)} |"
    yield f"|{' --- |' * (len(heads) + 1)}"
    for way in found.ways:
        cells = [f"{way.cost:.2f}", str(way.spearman), f"{way.kendall.value:.2f}"]
        cells += [_signed(way.gain), str(way.best or ""), f"{way.forgone_bpb:.3f}"]
        yield f"| {way.name} | {' | '.join(cells)} |"
    yield ""
    yield "; ".join(f"{times:g} ×: {rho}" for times, rho in found.steps_curve)
    if found.long_runs:
        yield f"one long run against another: {found.long_runs}"
    yield f"advised: {found.advised.name if found.advised else 'none'}"


def leanings(rows: Iterable[CalibrationRow], known: Sequence[LongRuns]) -> Iterator[str]:
    """A row for each kind of short run that all configs have: what the errors of its order go with.

    An error is the rank in the short run less that in the long one, so a knob with a negative
    correlation is one whose large values the short run flatters.
    """
    yield f"| its errors' Spearman with | {' | '.join(LEANING)} |"
    yield f"|{' --- |' * (len(LEANING) + 1)}"
    scores: dict[CalibrationRun, dict[str, float]] = {}
    for row in rows:
        if isinstance(row.trial.result, TrialOk) and row.run.steps < LONG_STEPS:
            mine = scores.setdefault(row.run, {})
            mine[row.config_hash] = row.trial.result.val_bpb
    resampled = Resampled(len(known))
    for way in sorted(scores, key=_name):
        if all(one.config.config_hash in scores[way] for one in known):
            errors = _errors(scores[way], known)
            cells = (
                interval(resampled.spearman(errors, [getattr(one.config, name) for one in known]))
                for name in LEANING
            )
            yield f"| {_name(way)} | {' | '.join(map(str, cells))} |"


def _errors(short: Mapping[str, float], known: Sequence[LongRuns]) -> list[float]:
    ours = mid_ranks([short[one.config.config_hash] for one in known])
    return list(ours - mid_ranks([one.score() for one in known]))


def _name(run: CalibrationRun) -> str:
    cooled = f", cooldown over the last {run.cooldown_steps}" if run.cooldown_steps else ""
    return f"{run.steps} steps of {run.horizon_steps or run.steps}{cooled}"


def _signed(gain: Correlation | None) -> str:
    return "" if gain is None else f"{gain.value:+.2f} ({gain.lo:+.2f} … {gain.hi:+.2f})"


if __name__ == "__main__":
    run(main)
