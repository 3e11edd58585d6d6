"""The ranking that ``top`` prints, of a campaign of this tool or another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.text import Text

from trainer.spec import BPB, Measure
from trajectory.ranking import Ranked
from trajectory.statistics.intervals import RunNoise
from trajectory.statistics.standings import Standing

Entry: TypeAlias = Ranked | Standing[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The output of ``top`` for a campaign of this tool or another."""

    entries: Sequence[Entry]
    described: Sequence[str]
    """A description of each config: its difference from the baseline, or its name."""
    costs: Sequence[str] | None
    """Training time of each config; None if the campaign does not hold it."""
    legend: str
    nothing: str
    """Message if nothing was measured."""
    fields: dict[str, Any]
    """The whole output as JSON fields."""
    measure: Measure = BPB
    unranked: str = ""
    """Number of measured configs without a rank, and the reason; empty if there are none."""
    incumbent: str | None = None
    fidelity: Sequence[str] = ()
    confirmed: Sequence[str] = ()
    """Lines on the confirmation of the search's choice, or that there is none."""
    code: Sequence[str] = ()
    """A small diff of each function that a config changes, from the baseline."""
    fresh: Sequence[str] = ()
    """The confirmation of each config; empty for a config without one."""


def table(board: Board) -> Iterator[Text]:
    """Yield two lines per config, so that neither a narrow terminal nor a long difference breaks
    them."""
    width = 19 if board.costs is None else 17  # another tool's measure has more digits
    cost = "" if board.costs is None else f" {'cost':>7}"
    measure = board.measure
    yield Text(
        f"{'#':>3} {'iter':>5} {'n':>3} {'posterior':>10}   {'95 % interval':<{width}} "
        f"{'mean':>8}   {'against the baseline':<{22 if cost else 0}}{cost}",
        style="bold",
    )
    for place, entry in enumerate(board.entries, start=1):
        versus, delta = "", entry.delta_vs_baseline
        if delta is not None:
            half = "" if entry.delta_hi is None else f" ± {measure.size(entry.delta_hi - delta)}"
            versus = f"{measure.signed(delta)}{half}{' *' if entry.beats_baseline else ''}"
        if board.costs is not None:
            versus, cost = f"{versus:<22}", f" {board.costs[place - 1]:>7}"
        yield Text.assemble(
            f"{place:>3} {entry.iter or '-':>5} {entry.n:>3} "
            f"{measure.text(entry.objective):>10}   "
            f"{interval_text(entry, measure):<{width}} {measure.text(entry.mean_objective):>8}   ",
            (versus, "green" if entry.beats_baseline else ""),
            cost,
        )
        yield Text(f"{'':>14}{board.described[place - 1]}", style="cyan")
        if board.fresh and board.fresh[place - 1]:
            yield Text(f"{'':>14}{board.fresh[place - 1]}", style="bold")


def interval_text(entry: Entry, measure: Measure) -> str:
    """Return a config's 95 % interval as it is shown, or "unknown"."""
    if entry.objective_lo is None or entry.objective_hi is None:
        return "unknown"
    return measure.span(entry.objective_lo, entry.objective_hi)


def noise_text(noise: RunNoise, measure: Measure = BPB) -> str:
    """Return how noisy one run is."""
    return f"one run has sd {measure.size(noise.sigma)} ({noise.dof} degrees of freedom)"
