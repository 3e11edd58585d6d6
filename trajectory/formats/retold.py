"""Summarize how another tool's loop used its iterations: repeats, knobs changed, and time.

A repeat is a proposal of a knob and a value that an earlier iteration had proposed, with any
outcome. The published analysis of the single-knob loop counts in the same way (36 of its 50).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from autoresearch.plain_text import plain
from autoresearch.values import Finite, Frozen, NonNegativeInt
from autoresearch.words import counted, duration_text
from trajectory.formats.foreign import ForeignRun

_SHOWN = 12
_SECONDS = {"iter_wall_s": "a turn", "train_wall_s": "training", "nim_latency_s": "proposing"}
"""Metrics of the single-knob loop's lines, with the names of what they time, in seconds."""


class Repeats(Frozen):
    """Number of proposals, and of those made before."""

    proposals: NonNegativeInt
    repeats: NonNegativeInt
    distinct: NonNegativeInt


class Retold(Frozen):
    """Summary of a loop's runs; None or empty for what the file does not contain."""

    repeats: Repeats | None
    touched: dict[str, NonNegativeInt]
    """Number of proposals by knob, most frequent first."""
    untouched: tuple[str, ...]
    """Knobs never proposed: those of the menu, or else values that the baseline names."""
    knobs_known: bool
    """Whether a menu defined the knobs."""
    total_s: Finite | None
    """Seconds of all iterations that report their duration."""
    mean_s: dict[str, Finite]
    """Mean seconds by activity, over the iterations that report it."""

    @classmethod
    def of(cls, runs: Sequence[ForeignRun], knobs: Sequence[str] | None = None) -> Retold:
        """Summarize runs.

        :param knobs: of the menu that the loop searched; None if it is not known.
        """
        proposed = [run.changes for run in runs if run.changes]
        touched = Counter(knob for changes in proposed for knob in changes)
        named = knobs if knobs is not None else _named(runs)
        walls = [wall for run in runs if (wall := _seconds(run, "iter_wall_s")) is not None]
        return cls(
            repeats=_repeats(proposed) if proposed else None,
            touched=dict(touched.most_common()),
            untouched=tuple(name for name in named if name not in touched) if proposed else (),
            knobs_known=knobs is not None,
            total_s=sum(walls) if walls else None,
            mean_s={
                name: fmean(seen)
                for name in _SECONDS
                if (seen := [s for run in runs if (s := _seconds(run, name)) is not None])
            },
        )

    def lines(self) -> Iterator[str]:
        """Yield the summary as lines of text."""
        found = self.repeats
        if found is None:
            yield "repeats   unknown: the file has no proposals, its configs are only names"
        else:
            yield (
                f"repeats   {found.repeats} of {counted(found.proposals, 'proposal')} "
                f"({found.repeats / found.proposals:.0%}) had been made before; "
                f"{found.distinct} different"
            )
            yield f"knobs     {self._knobs()}"
        if self.total_s is None:
            yield "time      unknown: the file has no durations"
        else:
            parts = ", ".join(
                f"{_SECONDS[name]} {seconds:.1f} s" for name, seconds in self.mean_s.items()
            )
            yield f"time      {duration_text(self.total_s)} in all; on average {parts}"

    def _knobs(self) -> str:
        of = len(self.touched) + len(self.untouched)
        what = "knobs were" if self.knobs_known else "values that the baseline names were"
        said = [f"{plain(name)} {times}" for name, times in list(self.touched.items())[:_SHOWN]]
        never = [plain(name) for name in self.untouched[:_SHOWN]]
        more = f" and {len(self.untouched) - _SHOWN} more" if len(self.untouched) > _SHOWN else ""
        return f"{len(self.touched)} of {of} {what} ever changed: {', '.join(said)}" + (
            f"; never {', '.join(never)}{more}" if never else ""
        )


def _repeats(proposed: Sequence[Mapping[str, object]]) -> Repeats:
    seen = Counter(json.dumps(changes, sort_keys=True) for changes in proposed)
    return Repeats(proposals=len(proposed), repeats=len(proposed) - len(seen), distinct=len(seen))


def _named(runs: Sequence[ForeignRun]) -> list[str]:
    baseline = next((run.values for run in runs if run.is_baseline and run.values), None)
    return list(baseline or ())


def _seconds(run: ForeignRun, name: str) -> float | None:
    seconds = run.metrics.get(name)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number and seconds >= 0 else None  # type: ignore[arg-type, operator]
