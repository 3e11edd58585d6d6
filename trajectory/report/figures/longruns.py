"""How far the short runs' ranking is the long runs'."""

from __future__ import annotations

from collections.abc import Sequence

from trajectory.report.drawing.canvas import FAILED, INK, KEEP, MUTED, Picture, sheet
from trajectory.report.longruns import Pair


def draw(pairs: Sequence[Pair], steps: int) -> Picture:
    """A point a config: its short score against its long one. Failures stand on the upper edge."""
    figure = sheet(3.9)
    axes = figure.subplots()
    measured = [(pair, pair.long_bpb) for pair in pairs if pair.long_bpb is not None]
    failed = [pair for pair in pairs if pair.long_bpb is None]
    axes.scatter(
        [pair.short_bpb for pair, _ in measured],
        [long_bpb for _, long_bpb in measured],
        s=34,
        color=KEEP.light,
        linewidths=0,
        zorder=3,
    )
    for pair, long_bpb in measured:
        axes.annotate(
            f"{pair.rank}",
            (pair.short_bpb, long_bpb),
            xytext=(5, 3),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED.light,
        )
    if failed:
        axes.plot(
            [pair.short_bpb for pair in failed],
            [0.97] * len(failed),
            linestyle="none",
            marker="x",
            color=FAILED.light,
            transform=axes.get_xaxis_transform(),
            label=f"no long score ({len(failed)})",
        )
        axes.legend(loc="lower right")
    axes.set_xlabel("short runs: posterior mean val_bpb")
    axes.set_ylabel(f"{steps} steps: mean val_bpb")
    axes.yaxis.label.set_color(INK.light)
    axes.xaxis.label.set_color(INK.light)
    axes.spines[:].set_visible(False)
    return Picture("rank-fidelity", f"Short against long scores of {len(pairs)} configs.", figure)
