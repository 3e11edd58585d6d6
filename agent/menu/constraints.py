"""Define a menu's constraints: conditions that every config must meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ConfigDict

from agent.menu.expressions import Expression, ExpressionError, Name
from autoresearch.values import Frozen, PlainText, Scalar
from autoresearch.words import json_text

BUDGET_STEPS = "budget_steps"
"""Name of the budget in constraints: optimizer steps, unknown for a budget in seconds."""


class Constraint(Frozen):
    """A condition over knobs, tied fields, constants and ``budget_steps`` that every config must
    meet."""

    model_config = ConfigDict(strict=True)

    expr: str
    doc: PlainText = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A constraint that is false, or has no value, for a config."""

    constraint: Constraint
    names: tuple[str, ...]
    """Names that it uses."""
    why: str
    """One clause with the values seen."""


@dataclass(frozen=True, slots=True)
class ParsedConstraint:
    """A constraint that can be evaluated."""

    constraint: Constraint
    expression: Expression

    @classmethod
    def parse(cls, constraint: Constraint, names: Mapping[str, Name]) -> ParsedConstraint:
        """Parse a constraint over these names and the budget's.

        :raises ValueError: naming the constraint and its fault.
        """
        try:
            known = {**names, BUDGET_STEPS: Name("number")}
            return cls(constraint, Expression.parse(constraint.expr, known))
        except ExpressionError as error:
            raise ValueError(f"constraint {json_text(constraint.expr)}: {error}") from error

    @property
    def needs_steps(self) -> bool:
        """Whether it can be checked only if the budget's steps are known."""
        return BUDGET_STEPS in self.expression.names

    def broken(self, values: Mapping[str, Scalar]) -> Broken | None:
        """Return why it does not hold for these values, None if it holds."""
        try:
            if self.expression.holds(values):
                return None
            problem = "does not hold"
        except ExpressionError as error:
            problem = f"has no value ({error})"
        used = tuple(name for name in values if name in self.expression.names)
        seen = ", ".join(f"{name} = {json_text(values[name])}" for name in used)
        where = f" where {seen}" if seen else ""
        doc = self.constraint.doc.strip()
        why = f" ({doc.rstrip('.')})" if doc else ""
        clause = f"the constraint {self.constraint.expr.strip()} {problem}{where}{why}"
        return Broken(self.constraint, used, clause)


def first_broken(
    constraints: Iterable[ParsedConstraint], values: Mapping[str, Scalar]
) -> Broken | None:
    """Return the first constraint that these values break; None if they break none. Constraints on
    the budget's steps are skipped if ``values`` lacks them."""
    checked = (each for each in constraints if BUDGET_STEPS in values or not each.needs_steps)
    return next((found for each in checked if (found := each.broken(values))), None)
