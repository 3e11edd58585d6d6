"""Define the source of a rule, and the range in which it was tested."""

from __future__ import annotations

from collections.abc import Iterator

from autoresearch.values import Frozen
from autoresearch.words import scalar_text


class Seen(Frozen):
    """The values of one quantity over which a rule was measured."""

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
    """Authors, year and arXiv number, with the place in it."""
    formula: str
    seen: tuple[Seen, ...] = ()
    """The range it was fitted or tested on, where the paper says one."""

    def beyond(self, **values: float) -> Iterator[str]:
        """In words, each value by the name of a quantity that lies outside its range."""
        for seen in self.seen:
            value = values.get(seen.what)
            if value is not None and value not in seen:
                yield (
                    f"{self.name} is used at {scalar_text(value)} {seen.what}, "
                    f"and was seen over {scalar_text(seen.low)} to {scalar_text(seen.high)}"
                )
