"""The ranking that ``top`` prints, of a campaign of this tool or another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.text import Text

from trainer.schema import BPB, Measure
from trajectory.ranking import Ranked
from trajectory.statistics.intervals import RunNoise
from trajectory.statistics.standings import Standing

Entry: TypeAlias = Ranked | Standing[Any]


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """A config's place in the ranking."""

    entry: Entry
    described: str
    """Its difference from the baseline, or its name."""
    cost: str | None = None
    """Its training time; None if the campaign does not hold it."""
    footprint: str = ""
    """Its parameters, memory and time per step."""
    fresh: str = ""
    """The result of its confirmation; empty without one."""


def table(places: Sequence[BoardPlace], measure: Measure = BPB) -> Iterator[Text]:
    """Yield two lines per config, so that neither a narrow terminal nor a long difference breaks
    them."""
    has_cost = bool(places) and places[0].cost is not None
    width = 17 if has_cost else 19  # another tool's measure has more digits
    cost = f" {'cost':>7}" if has_cost else ""
    yield Text(
        f"{'#':>3} {'iter':>5} {'n':>3} {'estimate':>10}   {'95 % interval':<{width}} "
        f"{'mean':>8}   {'against the baseline':<{22 if cost else 0}}{cost}",
        style="bold",
    )
    for number, place in enumerate(places, start=1):
        entry = place.entry
        versus, delta = "", entry.delta_vs_baseline
        if delta is not None:
            half = "" if entry.delta_hi is None else f" ± {measure.size(entry.delta_hi - delta)}"
            versus = f"{measure.signed(delta)}{half}{' *' if entry.beats_baseline else ''}"
        if place.cost is not None:
            versus, cost = f"{versus:<22}", f" {place.cost:>7}"
        yield Text.assemble(
            f"{number:>3} {entry.iter or '-':>5} {entry.n:>3} "
            f"{measure.text(entry.objective):>10}   "
            f"{interval_text(entry, measure):<{width}} {measure.text(entry.mean_objective):>8}   ",
            (versus, "green" if entry.beats_baseline else ""),
            cost,
        )
        apart = _from_next(entry, measure)
        yield Text.assemble(f"{'':>14}", (place.described, "cyan"), (apart, "dim"))
        if place.footprint:
            yield Text(f"{'':>14}{place.footprint}", style="dim")
        if place.fresh:
            yield Text(f"{'':>14}{place.fresh}", style="bold")


def _from_next(entry: Entry, measure: Measure) -> str:
    """Return how far a config is from the next one, with half of the 95 % interval."""
    if entry.delta_vs_next is None or entry.half_vs_next is None:
        return ""
    delta, half = measure.signed(entry.delta_vs_next), measure.size(entry.half_vs_next)
    return f"  ({delta} ± {half} from the next)"


def interval_text(entry: Entry, measure: Measure) -> str:
    """Return a config's 95 % interval as it is shown, or "unknown"."""
    if entry.objective_lo is None or entry.objective_hi is None:
        return "unknown"
    return measure.span(entry.objective_lo, entry.objective_hi)


def noise_text(noise: RunNoise, measure: Measure = BPB) -> str:
    """Return how noisy one run is."""
    return f"one run has sd {measure.size(noise.sigma)} ({noise.dof} degrees of freedom)"
