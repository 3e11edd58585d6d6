"""A ladder as lines, while its runs take their time."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from funnel.ladder.words import amount, shape_text
from funnel.stress.display import LongRunDisplay
from trajectory.ladder_plan import LadderPredictionRow, LadderRun

LINES_A_RUN = 4


class LadderDisplay(LongRunDisplay):
    """Tells a person how a ladder goes; a :class:`funnel.ladder.runs.LadderWatcher`."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, lines=LINES_A_RUN)

    def run_begins(self, run: LadderRun, seed: int, number: int, runs: int) -> None:
        rate = "" if run.lr_factor == 1 else f", {run.lr_factor:.3g} × the rules' rate"
        self._print(
            Text.assemble(
                (f"run {number} of {runs}", "bold"),
                f"  rung {run.rung}, {run.recipe}, seed {seed}: {amount(run.params)} parameters, "
                f"{amount(run.tokens)} tokens in {run.steps:,} steps{rate}: ",
                (f"{shape_text(run.config)} lr={run.config.lr:.3g}", "cyan"),
            )
        )

    def predicted(self, row: LadderPredictionRow) -> None:
        """Say what the largest rung should come to, before it begins."""
        for loss in row.predicted:
            self._print(
                Text.assemble(
                    ("foretold  ", "bold"),
                    f"{loss.recipe} at {amount(loss.params)} parameters and {amount(loss.tokens)} "
                    f"tokens: {loss.middle:.4f} bpb ({loss.low:.4f} to {loss.high:.4f}, 95 %)",
                )
            )
        self._print(Text(f"          written at {row.at}, SHA-256 {row.sha256}"))
