"""Define the source of a rule, and the range in which it was tested."""

from __future__ import annotations

from collections.abc import Iterator

from autoresearch.values import Frozen
from autoresearch.words import scalar_text


class Seen(Frozen):
    """The range of one quantity over which a rule was tested."""

    what: str
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.what} {scalar_text(self.low)} to {scalar_text(self.high)}"


class Rule(Frozen):
    """One published rule."""

    name: str
    paper: str
    """Authors, year, arXiv number, and the place in the paper."""
    formula: str
    seen: tuple[Seen, ...] = ()
    """Ranges over which the rule was fitted or tested, if the paper states them."""

    def beyond(self, **values: float) -> Iterator[str]:
        """Yield a note, in words, for each value outside the range of its quantity.

        :param values: values by the name of the quantity.
        """
        for seen in self.seen:
            value = values.get(seen.what)
            if value is not None and value not in seen:
                yield (
                    f"{self.name} is used at {scalar_text(value)} {seen.what}, "
                    f"and was seen over {scalar_text(seen.low)} to {scalar_text(seen.high)}"
                )
