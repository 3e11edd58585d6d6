"""A stress test as lines: for terminals, logs and pipes alike, since its runs take their time."""

from __future__ import annotations

from statistics import fmean

from rich.console import Console
from rich.text import Text

from autoresearch.words import changes_text, duration_text
from funnel.stress.plan import Entrant
from trainer.spec import BPB, AnyConfig, CurvePoint, Measure, Place, TrialSpec, difference
from trajectory.rows import LadderRow, Role, StressOutcome, StressRow, TrialRecord

SHOWN_EVERY = 50
"""Steps between lines."""
OUTCOME_STYLE: dict[StressOutcome, str] = {
    "survives": "green",
    "spikes": "yellow",
    "plateaus": "yellow",
    "grad_blowup": "red",
    "diverges": "red",
    "nonfinite": "red",
    "failed": "red",
}


class LongRunDisplay:
    """Tells a person how a long run goes, step by step."""

    def __init__(self, console: Console, lines: int | None = None, measure: Measure = BPB) -> None:
        """
        :param lines: of a run at most; None: one every SHOWN_EVERY steps.
        :param measure: what scores are told in.
        """
        self._console = console
        self._measure = measure
        self._lines = lines
        self._steps: int | None = None
        self._since: dict[str, list[float]] = {}
        """Of every trial at work, the losses since its last line."""

    def note(self, text: str) -> None:
        self._print(Text(text, style="yellow"))

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self._since[spec.trial_id] = []
        self._steps = spec.steps

    def trial_placed(self, trial_id: str, place: Place) -> None: ...

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        losses = self._since.setdefault(trial_id, [])
        losses.append(point.loss)
        if self._steps is None or (point.step % self._every and point.step != self._steps):
            return
        left_s = point.elapsed_s / max(1, point.step) * (self._steps - point.step)
        which = f"{trial_id}  " if len(self._since) > 1 else ""
        text = f"  {which}step {point.step:>5} of {self._steps}   loss {fmean(losses):7.4f}   "
        if point.lr is not None and point.grad_norm is not None:
            text += f"lr {point.lr:.2e}   grad norm {point.grad_norm:8.3g}   "
        self._print(Text(f"{text}{duration_text(left_s)} left"))
        losses.clear()

    def trial_ended(self, record: TrialRecord) -> None:
        self._since.pop(record.trial_id, None)

    def trial_given_up(self, trial_id: str) -> None: ...

    def run_ended(self, row: StressRow | LadderRow) -> None:
        verdict = row.verdict
        score, found = "no score", row.trial.objective
        if found is not None:
            score = f"{self._measure.text(found)} {self._measure.short}"
        at = "" if verdict.step is None else f" at step {verdict.step}"
        self._print(
            Text.assemble(
                "  ",
                (f"{verdict.outcome}{at}", OUTCOME_STYLE[verdict.outcome]),
                f"  {score}  [{duration_text(row.trial.wall_s)}]",
                "" if verdict.outcome == "survives" else f"\n    {verdict.explanation}",
            )
        )

    @property
    def _every(self) -> int:
        """Steps between lines."""
        if self._lines is None or self._steps is None:
            return SHOWN_EVERY
        return max(SHOWN_EVERY, -(-self._steps // self._lines))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


class StressDisplay(LongRunDisplay):
    """Tells a person how the long runs go; an :class:`funnel.stress.runs.StressWatcher`."""

    def __init__(self, console: Console, baseline: AnyConfig, measure: Measure = BPB) -> None:
        """
        :param baseline: configs are described by what they change of it.
        """
        super().__init__(console, measure=measure)
        self._baseline = baseline

    def run_begins(self, entrant: Entrant, seed: int, number: int, runs: int) -> None:
        changes = changes_text(difference(entrant.config, self._baseline))
        self._print(
            Text.assemble(
                (f"run {number} of {runs}", "bold"),
                f"  {entrant.purpose}, rank {entrant.rank}, seed {seed}: ",
                (changes or "the baseline itself", "cyan"),
            )
        )
