"""Training loss of the best configs beside the baseline's."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory.report.canvas import BASE, SERIES, Picture, draw_loss, finish_losses, sheet
from trajectory.report.figures.figure import LEARNING, Figure
from trajectory.report.findings import Findings
from trajectory.report.reading.iterations import LearningCurve, curve_of

CURVES = 5
"""The most of the best configs whose curves are drawn."""


@dataclass(frozen=True)
class LearningCurves(Figure):
    """Curves of the best configs that have one, and the baseline's."""

    name = "learning-curves"
    section = LEARNING
    best: tuple[tuple[str, LearningCurve], ...]
    """Legend text and curve of each config, the best first."""
    baseline: LearningCurve | None
    of_command: bool = False
    """Whether the losses are those that a command printed."""

    @property
    def caption(self) -> str:
        """Description of the curves, and of the score that decides."""
        what = (
            "The loss is on the training text, in nats per token; decisions use val_bpb on "
            "held-out text."
        )
        if self.of_command:
            what = "The loss is the curve that the command printed; decisions use its score."
        return (
            "Training loss of the best configs and the baseline, mean over n seeds and over a "
            f"trailing window of a twentieth of the curve. {what}"
        )

    @classmethod
    def of(cls, found: Findings) -> LearningCurves | None:
        if found.ours is None:
            return None
        evidence = found.ours.ledger.evidence
        entry = evidence.configs.get(evidence.baseline_hash or "")
        baseline = curve_of(entry, found.ours.read) if entry else None
        others = [one for one in found.ours.best if one.config_hash != evidence.baseline_hash]
        best = []
        for ranked in others[:CURVES]:
            curve = curve_of(evidence.configs[ranked.config_hash], found.ours.read)
            if curve is not None:
                best.append((f"iteration {ranked.iter}", curve))
        of_command = found.ours.ledger.campaign.script is not None
        return cls(tuple(best), baseline, of_command) if best or baseline else None

    @property
    def alt(self) -> str:
        return f"Training loss of the {len(self.best)} best configs."

    def draw(self) -> Picture:
        figure = sheet(3.7)
        axes = figure.subplots()
        if self.baseline is not None:
            draw_loss(axes, self.baseline, BASE, f"baseline, n={self.baseline.seeds}", "dashed")
        for ink, (name, curve) in zip(SERIES, self.best, strict=False):
            draw_loss(axes, curve, ink, f"{name}, n={curve.seeds}")
        drawn = [curve for _, curve in self.best]
        curves = drawn + ([self.baseline] if self.baseline else [])
        finish_losses(axes, curves, None if self.of_command else "nats per token")
        return Picture(self.name, self.alt, figure)
