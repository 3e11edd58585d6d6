"""An attribution as lines, a line a run: for terminals, logs and pipes alike."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from autoresearch.words import duration_text
from trainer.spec import BPB, CurvePoint, Measure, Place, TrialFailed, TrialSpec
from trajectory.rows import AttributionRow, Role, TrialRecord


class AttributionDisplay:
    """Tells a person how it goes; an :class:`funnel.attribution.runs.AttributionWatcher`."""

    def __init__(self, console: Console, measure: Measure = BPB) -> None:
        self._console = console
        self._measure = measure

    def note(self, text: str) -> None:
        self._print(Text(text, style="yellow"))

    def run_begins(self, row_of: str, seed: int, number: int, runs: int) -> None:
        self._print(
            Text.assemble((f"run {number} of {runs}", "bold"), f"  seed {seed}: ", (row_of, "cyan"))
        )

    def trial_started(self, spec: TrialSpec, role: Role) -> None: ...
    def trial_placed(self, trial_id: str, place: Place) -> None: ...
    def trial_point(self, trial_id: str, point: CurvePoint) -> None: ...
    def trial_ended(self, record: TrialRecord) -> None: ...
    def trial_given_up(self, trial_id: str) -> None: ...

    def run_ended(self, row: AttributionRow) -> None:
        result = row.trial.result
        said = (
            Text(f"  {result.status}: {result.message}", style="red")
            if isinstance(result, TrialFailed)
            else Text(
                f"  {self._measure.text(result.objective)} {self._measure.short}  "
                f"[{duration_text(row.trial.wall_s)}]"
            )
        )
        self._print(said)

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)
