"""Kinds of device that a campaign's trials run on, where there are several.

Runs on unlike devices cannot be compared, so each seed belongs to one kind and is run nowhere else
(:func:`trainer.executors.base.kind_of_seed`): whatever compares runs of one seed, as everything
does, compares runs of one kind. A race is on one kind, whose seeds alone it uses; so the kinds
race side by side, each against its own runs of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainer.executors.base import kind_of_seed


@dataclass(frozen=True, slots=True)
class Kinds:
    """Those of a campaign."""

    places: Mapping[str, int]
    """Trials at once by kind, in the campaign's order; empty where all devices are alike."""

    def next(self, racing: Iterable[str | None]) -> str | None:
        """The kind for one more race: the one with the most room.

        :param racing: kinds of the races at work.
        """
        at_work = list(racing)
        return min(
            self.places, key=lambda kind: at_work.count(kind) - self.places[kind], default=None
        )

    def seeds(self, first: int, kind: str | None) -> tuple[int, int]:
        """The first seed of a race on this kind, and how far it is from each to the next.

        :param first: of the campaign's.
        :param kind: None, and one that is not here: any.
        """
        names = tuple(self.places)
        if kind not in self.places:
            return first, 1
        own = next(s for s in range(first, first + len(names)) if kind_of_seed(s, names) == kind)
        return own, len(names)
