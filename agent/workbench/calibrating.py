"""A calibration at work: what is asked for, said while it runs, and told at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean

from pydantic import Field
from rich.console import Console
from rich.text import Text

from agent.search.calibration.plan import MOST_LONG_SEEDS, CalibrationPlan, Planned
from agent.search.calibration.runs import Calibration
from agent.search.calibration.ways import says_nothing
from agent.search.confirm.plan import FreshTexts
from agent.workbench.sitting import Sitting
from autoresearch.values import Frozen
from autoresearch.words import counted, duration_text
from trainer.spec import AnyConfig, CurvePoint, Place, TrialOk, TrialSpec
from trajectory.calibrated import Calibrated, Correlation, Way
from trajectory.calibration import FEWEST, times_to_gain
from trajectory.rows import CalibrationRow, Role, TrialRecord


class FidelityAsked(Frozen):
    """Which calibration a person wants."""

    configs: int = Field(
        40, ge=FEWEST, le=10_000, description="With --fidelity: configs to train short and long."
    )
    steps: int = Field(1000, ge=50, le=10**7, description="With --fidelity: of a long run.")
    long_seeds: int = Field(
        1,
        ge=1,
        le=MOST_LONG_SEEDS,
        description="With --fidelity: long runs of each config; two tell how noisy one is.",
    )


@dataclass(slots=True)
class _Open:
    """A config at work."""

    head: str
    left: int
    said: list[str] = field(default_factory=list)
    took_s: float = 0.0
    """Of its runs, one after another."""


class CalibrationDisplay:
    """A line for every config; an :class:`agent.search.calibration.runs.CalibrationWatcher`."""

    def __init__(self, console: Console, plan: CalibrationPlan) -> None:
        self._console = console
        self._plan = plan
        self._open: dict[str, _Open] = {}
        """By config_hash: those with runs to come."""

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"), soft_wrap=True, highlight=False)

    def config_begins(self, config: AnyConfig, number: int, missing: int) -> None:
        head = f"  config {number} of {self._plan.configs}"
        self._open[config.config_hash] = _Open(head, missing)

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_placed(self, trial_id: str, place: Place) -> None: ...
    def trial_point(self, trial_id: str, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...
    def trial_given_up(self, trial_id: str) -> None: ...

    def run_ended(self, row: CalibrationRow, planned: Planned) -> None:
        shown = self._open.get(row.config_hash)
        if shown is None:
            return  # it is left out, and was told
        shown.left -= 1
        shown.took_s += row.trial.wall_s
        result = row.trial.result
        if planned.kind in {"own", "long"} or not isinstance(result, TrialOk):
            score = f"{result.val_bpb:.4f}" if isinstance(result, TrialOk) else result.status
            shown.said.append(f"{score} after {row.run.steps:,} steps")
        if not shown.left or says_nothing(result):
            line = f"{shown.head}: {', '.join(shown.said)}  [{duration_text(shown.took_s)}]"
            self._console.print(Text(line), soft_wrap=True, highlight=False)
            del self._open[row.config_hash]


def calibrate_fidelity(sitting: Sitting, asked: FidelityAsked) -> Calibrated:
    """Run what the journal lacks of the calibration, and say how it goes.

    :raises Interrupted: when a person stopped it; everything finished is on disk.
    :raises AutoresearchError: where nothing can be calibrated.
    """
    with sitting.console.status("preparing the text that is set aside"):
        texts = FreshTexts.of(sitting.campaign, ())
    vocab_size = sitting.campaign.corpus.info.vocab_size
    means = CalibrationPlan.means(sitting.campaign.settings)
    plan = CalibrationPlan(
        sitting.campaign,
        texts,
        configs=asked.configs,
        long_steps=asked.steps,
        long_seeds=asked.long_seeds,
        memory=sitting.memory.with_average(vocab_size, means).model,
    )
    display = CalibrationDisplay(sitting.console, plan)
    work = Calibration(
        plan=plan,
        runner=sitting.runner(sitting.campaign.trial_spec, display),
        watcher=display,
        stop=sitting.stop,
        meter=sitting.sampler,
    )
    for line in _announcement(work):
        sitting.say(line)
    return work.run()


def _announcement(work: Calibration) -> Iterator[str]:
    plan = work.plan
    runs = list(plan.runs(plan.campaign.menu.baseline))
    steps = sum(one.run.steps for one in runs)
    yield (
        f"calibrate {counted(plan.configs, 'config')} over the menu, {len(runs)} runs of "
        f"{steps:,} steps in all each; {plan.long_steps:,} are a long run's"
    )
    done = work.done()
    pace = [one.run.steps / one.trial.wall_s for one in done if one.trial.wall_s]
    if pace:
        lanes = work.runner.places
        left = max(0, plan.configs - len(done) / len(runs)) * steps / fmean(pace) / lanes
        pace_text = f"; by their pace about {duration_text(left)} are left" if left else ""
        yield f"          {counted(len(done), 'run')} of such in the journal{pace_text}"


# --- told ---------------------------------------------------------------------------------------


def told(found: Calibrated) -> Iterator[Text]:
    """What it found, for a terminal: the headline first."""
    yield Text(found.headline, style="bold")
    yield Text(
        "rank correlations with the score of long runs on other seeds, with 95 % intervals; gain "
        "is Spearman less the campaign's own; cost is training and scoring over its own; forgone "
        "is what the first of a way loses on the best in the long run, in bpb",
        style="dim",
    )
    yield Text(
        f"{'way':<36} {'cost':>5}  {'Spearman':<20} {'Kendall':>7}  {'gain':<22} "
        f"{f'best {found.best_n}':<21} {'forgone':>7}",
        style="bold",
    )
    for way in found.ways:
        yield _line(way)
    for text in (*_left_out(found), *_length(found)):
        yield Text(text, style="dim")
    yield Text(_advice(found), style="green" if found.advised else "")


def _line(way: Way) -> Text:
    gain = "" if way.gain is None else f"{way.gain.value:+.2f} ({_span(way.gain)})"
    best = "" if way.best is None else str(way.best)
    return Text(
        f"{way.name:<36} {way.cost:>5.2f}  {way.spearman!s:<20} {way.kendall.value:>7.2f}  "
        f"{gain:<22} {best:<21} {way.forgone_bpb:>7.4f}"
    )


def _span(interval: Correlation) -> str:
    return f"{interval.lo:+.2f} … {interval.hi:+.2f}"


def _left_out(found: Calibrated) -> Iterator[str]:
    if found.nonfinite:
        yield f"{counted(found.nonfinite, 'config')} lost its numbers in a long run and ranks last"
    if found.left_out:
        yield (
            f"{counted(found.left_out, 'config')} more ended for want of memory or time, or "
            "crashed, and is left out"
        )
    if found.long_runs:
        yield f"one long run ranks as the mean of the others does: Spearman {found.long_runs}"


def _length(found: Calibrated) -> Iterator[str]:
    curve = ", ".join(f"{times:g} × {rho}" for times, rho in found.steps_curve)
    yield f"by length of the short run, over {found.budget}: {curve}"
    gains = times_to_gain(found.steps_curve)
    if gains:
        costs = ", ".join(f"{rho:.2f} at {times:.1f} ×" for rho, times in gains)
        yield f"what each further 0.05 takes, between those: {costs}"


def _advice(found: Calibrated) -> str:
    advised = found.advised
    if advised is None:
        return (
            "no way of equal cost ranks surely better than the campaign's own (by an interval that "
            f"holds for all {len(found.ways) - 1} at once)"
        )
    return (
        f"ranks surely better at equal cost: {advised.name}; a new campaign may measure so "
        "(loop --horizon, --average, --cooldown)"
    )
