"""Training loss of the best configs beside the baseline's."""

from collections.abc import Sequence
from functools import partial

from trajectory.report.canvas import BASE, SERIES, Picture, draw_loss, finish_losses, sheet
from trajectory.report.figures import LEARNING, Figure
from trajectory.report.findings import Findings
from trajectory.report.iterations import LearningCurve, curve_of

CURVES = 5
"""The most of the best configs whose curves are drawn."""


def learning_curves(found: Findings) -> Figure | None:
    """Return curves of the best configs that have one, and the baseline's; None without any."""
    ledger = found.ledger
    baseline = curve_of(ledger.baseline, found.read) if ledger.baseline else None
    best = []
    for ranked in [one.entry for one in found.best if not one.is_baseline][:CURVES]:
        curve = curve_of(ledger.evidence.configs[ranked.config_hash], found.read)
        if curve is not None:
            best.append((f"iteration {ranked.iter}", curve))
    if not best and baseline is None:
        return None
    what, unit = (
        "The loss is on the training text, in nats per token; decisions use val_bpb on held-out "
        "text.",
        "nats per token",
    )
    if ledger.campaign.script is not None:
        what, unit = "The loss is the curve that the command printed; decisions use its score.", ""
    caption = (
        "Training loss of the best configs and the baseline, mean over n seeds and over a trailing "
        f"window of a twentieth of the curve. {what}"
    )
    draw = partial(_draw, best, baseline, unit)
    return Figure("learning-curves", LEARNING, caption, draw, best)


def _draw(
    best: Sequence[tuple[str, LearningCurve]], baseline: LearningCurve | None, unit: str
) -> Picture:
    figure = sheet(3.7)
    axes = figure.subplots()
    drawn = [curve for _, curve in best]
    if baseline is not None:
        draw_loss(axes, baseline, BASE, f"baseline, n={baseline.seeds}", "dashed")
        drawn.append(baseline)
    for ink, (name, curve) in zip(SERIES, best, strict=False):
        draw_loss(axes, curve, ink, f"{name}, n={curve.seeds}")
    finish_losses(axes, drawn, unit)
    alt = f"Training loss of the {len(best)} best configs."
    return Picture("learning-curves", alt, figure)
