"""How strict the judge is, as one value: the judge weighs by it, and every decision's row says it.

It stands here and not beside the judge (:mod:`agent.judge`) because the record outlives the code
that decided. A rule is declared here alone: rows carry whatever :class:`Rules` holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from autoresearch.options import AsOption
from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt

Z_OBVIOUS = 3.0


class Rules(Frozen):
    """How strict the judge is; each is a setting of a campaign (:mod:`agent.settings.campaign`)."""

    z_keep: Annotated[NonNegative, AsOption("--z")] = Field(
        1.3, description="Standard errors by which a gain must exceed zero to be kept."
    )
    """Standard errors by which a gain must exceed nothing at the race's end."""
    z_drop: NonNegative = Field(
        0.5, description="Futility bound: standard errors of optimism before a race is abandoned."
    )
    """Standard errors of hope after the second pair and later ones: what could not reach the bar
    even if the truth were so much better ends there."""
    first_drop: Finite = Field(
        0.0, description="Loss on the first pair of runs, in standard deviations, that ends a race."
    )
    """The loss on the first pair, in ``sigma_d``, that ends a race. Negative: only what gained so
    much goes on. A second run costs as much as the next idea: at 0 a candidate as good as its
    reference is dropped after one run in half of all cases, one that is better by ``sigma_d`` in
    one of six."""
    max_runs: int = Field(
        4,
        ge=2,
        le=1000,
        description="Largest number of seeds on which a candidate meets its reference.",
    )
    """That a candidate and its reference are trained on."""

    def keeps_early(self, z: float, pairs: int) -> bool:
        """Whether a gain of so many standard errors wins the race before its last pair."""
        return pairs >= 2 and z >= max(Z_OBVIOUS, self.z_keep)


_NAMES = tuple(Rules.model_fields)
_OF_FORMAT_1 = {"z_keep", "z_drop", "max_runs"}
"""Rows name these even where they do not say them."""


def _values(said: Any) -> Any:
    return said.model_dump() if isinstance(said, Rules) else said


RuleValues: TypeAlias = Annotated[
    dict[str, NonNegativeInt | Finite | None], BeforeValidator(_values)
]
"""The rules as a row says them, by name, whatever bounds they have by now. Before format 3 no row
says them all."""


def with_rules_as_one(said: Mapping[str, Any]) -> dict[str, Any]:
    """A decision's fields, where a row has a field for each rule."""
    if "rules" in said:
        return dict(said)
    others = {name: value for name, value in said.items() if name not in _NAMES}
    return {"rules": {name: said.get(name) for name in _NAMES}} | others


def with_rules_by_name(decision: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of its row, in their order."""
    row: dict[str, Any] = {}
    for name, value in decision.items():
        row |= {rule: value.get(rule) for rule in _NAMES} if name == "rules" else {name: value}
    return {
        name: value
        for name, value in row.items()
        if value is not None or name not in _NAMES or name in _OF_FORMAT_1
    }
