"""Assign races to kinds of device if a campaign's trials run on several.

Runs on unlike devices cannot be compared, so each seed belongs to one kind and runs nowhere else
(:func:`trainer.executors.base.kind_of_seed`). Every comparison is of runs with one seed, hence of
one kind. A race uses the seeds of one kind only, so kinds race side by side, each against its own
runs of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainer.executors.base import kind_of_seed


@dataclass(frozen=True, slots=True)
class Kinds:
    """A campaign's kinds of device."""

    places: Mapping[str, int]
    """Concurrent trials by kind, in the campaign's order; empty if all devices are alike."""

    def next(self, racing: Iterable[str | None]) -> str | None:
        """Return the kind with the most free places, for one more race.

        :param racing: kinds of the races in flight.
        """
        at_work = list(racing)
        return min(
            self.places, key=lambda kind: at_work.count(kind) - self.places[kind], default=None
        )

    def seeds(self, first: int, kind: str | None) -> tuple[int, int]:
        """Return the first seed of a race on this kind, and the step from each seed to the next.

        :param first: the campaign's first seed.
        :param kind: None or an unknown kind uses every seed.
        """
        names = tuple(self.places)
        if kind not in self.places:
            return first, 1
        own = next(s for s in range(first, first + len(names)) if kind_of_seed(s, names) == kind)
        return own, len(names)
