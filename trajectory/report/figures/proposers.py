"""Who proposed, and how often it paid."""

from __future__ import annotations

from collections.abc import Sequence

from trajectory.report.drawing.canvas import DISCARD, INK, KEEP, Picture, bare, sheet
from trajectory.report.proposers import ProposerFigures

MOST = 12
"""Kinds drawn, the busiest."""


def draw(found: Sequence[ProposerFigures]) -> Picture:
    """Share of the iterations, and share of these that were kept with its interval."""
    drawn = found[:MOST]
    figure = sheet(0.34 * len(drawn) + 0.95)
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.08})
    places = range(len(drawn))
    left.set_title("share of iterations")
    left.barh(places, [100 * one.share.value for one in drawn], height=0.5, color=DISCARD.light)
    right.set_title("hit rate: kept of its own, 95 % interval")
    for place, one in enumerate(drawn):
        rate = one.hit_rate
        assert rate.lo is not None
        assert rate.hi is not None
        right.plot([100 * rate.lo, 100 * rate.hi], [place, place], color=KEEP.light, linewidth=2)
        right.plot(
            [100 * rate.value], [place], "o", color=KEEP.light, markeredgewidth=0, clip_on=False
        )
    left.set_yticks(places, [f"{one.kind}\nn={one.hit_rate.n}" for one in drawn])
    left.tick_params(axis="y", labelcolor=INK.light)
    left.set_ylim(len(drawn) - 0.4, -0.6)
    left.set_xlim(0, 100)
    right.set_xlim(left=0)
    for axes in (left, right):
        axes.set_xlabel("%")
        bare(axes)
    words = "; ".join(
        f"{one.kind}: {one.share.value:.0%} of iterations, {one.kept} kept" for one in drawn
    )
    return Picture("proposers", words, figure)
