"""Combine what is known of a script: sorted options, its score and curve, and its assertions."""

import ast
import copy
import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agent.menu.expressions import Expression, ExpressionError
from agent.menu.knobs import Constraint, Knob
from agent.menu.scripts.metrics import Candidate
from agent.menu.scripts.option import given_by, says, words_of
from agent.menu.scripts.reading import Script, modules_beside, unread
from agent.menu.scripts.sorting import Place, sorted_options
from agent.menu.scripts.start import (
    WHOLE_SCRIPT,
    Start,
    preloadable,
    python_is_ours,
    start_of,
)
from autoresearch.safe_text import plain
from autoresearch.values import Scalar
from trainer.schema import Direction
from trainer.script.constants import assigned_once, first_values
from trainer.script.literals import NotLiteralError, literal
from trainer.script.regions import Region, regions

USUAL_STEPS = 60
USUAL_HORIZON = 1000


@dataclass(frozen=True)
class Draft:
    """Everything drafted from a script."""

    script: Script
    start: Start
    directory: str
    """The folder to start in, as the menu states it."""
    search: tuple[str, ...] = ()
    """Options that a person wants as knobs."""
    score: Candidate | None = None
    direction: Direction | None = None
    curve: str = ""
    """Label of the curve; empty if none was printed."""
    reached: int | None = None
    """The step at which the dry start was stopped; None if it ended by itself."""

    @cached_property
    def places(self) -> list[Place]:
        """Every option of the script, sorted by use."""
        return sorted_options(self.script.options, self.script.tree, self.search)

    @property
    def knobs(self) -> list[Knob]:
        """Knobs, in order."""
        return [place.knob for place in self.places if place.knob]

    @property
    def constants(self) -> dict[str, Scalar]:
        """Values of the constants, in order."""
        held = [place.option for place in self.places if place.use == "constant"]
        return {one.name: one.default for one in held if one.default is not None}

    @property
    def given(self) -> list[Place]:
        """Options that the loop sets."""
        return [place for place in self.places if place.use == "given"]

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of the command, with placeholders."""
        env = {"PYTHONPATH": self.start.search_path} if self.start.search_path else {}
        return env | {
            one.option.variable: one.template or f"{{{one.option.name}}}"
            for one in self.places
            if one.option.variable and one.use != "left"
        }

    @property
    def left(self) -> list[Place]:
        """Options that the script keeps unchanged."""
        return [place for place in self.places if place.use == "left"]

    def gives(self, placeholder: str) -> bool:
        """Return whether the loop sets an option by this placeholder, such as ``{steps}``."""
        return any(placeholder in one.template for one in self.given)

    @cached_property
    def slots(self) -> list[Region]:
        """The script's marked regions."""
        return list(regions(self.script.source).values())

    @cached_property
    def constraints(self) -> list[Constraint]:
        """The script's assertions about the knobs, and that a schedule does not end above its
        start."""
        values = self.constants | {one.name: one.default for one in self.knobs}
        turned = {one.name for one in self.knobs}
        asserted = constraints_asserted(self.script, values)
        kept = [one for one in asserted if turned & set(re.split(r"[()\s]+", one.expr))]
        return kept + list(_rates_in_order(values))

    @cached_property
    def main(self) -> str | None:
        """``__main__`` if a server can load what the script imports; None if the script must be a
        new program."""
        needs_program = self.start.module or self.start.search_path or self.script.means == "edit"
        if needs_program or not python_is_ours():
            return None
        return WHOLE_SCRIPT if preloadable(self.script.tree) else None

    @property
    def to_do(self) -> list[str]:
        """Return what a person must fix before the menu can be used, one clause each."""
        notes = [
            f"{place.option.name}: {place.why}; add it to the command"
            for place in self.left
            if place.option.required
        ]
        if self.score is None:
            notes.append("no number with a label was printed: set score to the words before it")
        elif self.direction is None:
            notes.append(
                f"whether less or more of {self.score.name!r} is better: set direction to minimise "
                "or maximise"
            )
        return notes

    @property
    def notes(self) -> list[str]:
        """Return what a person should know before the menu is used, one clause each."""
        notes = unread(self.script.tree)
        if self.script.missing:
            notes.append(f"not installed here: {', '.join(self.script.missing)}")
        if self.script.failed:
            notes.append(
                f"it ended before it parsed options ({plain(self.script.failed)[:200]}): if it has "
                "any, fix that and draft again"
            )
        if self.score and self.score.is_training:
            notes.append("the score's label names no validation data: it may be a training figure")
        if self.score and not self.score.times:
            notes.append("the score was not printed yet: its label is from the script's text")
        notes += [
            f"{one.name} is {one.default}, but a trial has {self.steps} steps: lower it"
            for one in self.knobs
            if self.gives("{steps}") and isinstance(one.default, int)
            if one.default > self.steps and says(one.name, "warm ?up|warm ?down|cool ?down")
        ]
        if self.reached is not None and not (self.gives("{steps}") or self.gives("{seconds}")):
            notes.append(
                "it still trained when the dry start ended, and no budget ends it: shorten it, "
                "or set [campaign] wall_s"
            )
        if not self.gives("{seed}"):
            notes.append(
                "no seed was found: the baseline's runs will show whether two runs of a config "
                "differ"
            )
        return notes

    @property
    def length(self) -> str:
        """Return one clause if a trial is not as long as the script; empty if it is."""
        own = self.own_steps
        if not self.gives("{steps}") or own == self.steps:
            return ""
        return f"the script's own is {own}" if own else "the script names none"

    @property
    def own_steps(self) -> int | None:
        """The script's own number of steps, or that of a manual start."""
        named = (one.option for one in self.given if one.template == "{steps}")
        lengths = (one.default for one in named if given_by(one) == "{steps}")
        return next((n for n in lengths if type(n) is int and n > 0), None)

    @property
    def steps(self) -> int:
        """Length of a trial, if the script takes it in steps: its own, unless the dry start had to
        be stopped."""
        own = self.own_steps or USUAL_STEPS
        return own if self.reached is None else max(1, min(own, self.reached or USUAL_STEPS))


def draft_of(script: Script, menu: Path | None, search: tuple[str, ...] = ()) -> Draft:
    """Return the draft of a script's menu.

    :param menu: where the menu will be: its directories are relative to it.
    :param search: options that a person wants as knobs.
    """
    start = start_of(script.path, script.tree, edited=script.means == "edit")
    own, base = start.folder, (menu.resolve() if menu else Path.cwd() / "menu.toml").parent
    directory = os.path.relpath(own, base) if own.is_relative_to(base) else str(own)
    return Draft(script, start, directory, search)


def _rates_in_order(values: dict[str, Scalar]) -> Iterator[Constraint]:
    """Yield ``min_lr <= lr`` if both exist and it holds."""
    names = {words_of(name): name for name in values}
    least = next((n for n in ("min lr", "min learning rate", "lr min") if n in names), None)
    rate = next((n for n in ("learning rate", "lr", "max lr") if n in names), None)
    if least is not None and rate is not None:
        low, high = values[names[least]], values[names[rate]]
        if isinstance(low, float) and isinstance(high, float) and low <= high:
            expr = f"{names[least]} <= {names[rate]}"
            yield Constraint(expr=expr, doc="the rate decays to its minimum")


MAX_DEPTH = 8
"""Most names within names that are substituted."""


def constraints_asserted(script: Script, values: Mapping[str, Scalar]) -> list[Constraint]:
    """Return the assertions of the script and the modules beside it as constraints.

    ``assert config.n_embd % config.n_head == 0`` holds for every config that trains, whether in the
    script or in a module beside it that it imports. A name that the module computes once from
    others is replaced by its expression. An assertion about ``tokens_per_step`` thus becomes one
    about knobs. Assertions that the menu's language cannot express, or that are false at the
    defaults, are omitted.

    :param values: knobs and constants at their defaults.
    """
    found: dict[str, Constraint] = {}
    beside = modules_beside(script.path, script.tree)
    for place, tree in {script.path: script.tree, **beside}.items():
        known = assigned_once(tree)
        if place == script.path:
            known |= _imported_values(script, beside)
        over_knobs = _OverKnobs(known, values)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assert):
                continue
            try:
                expr = ast.unparse(over_knobs.visit(copy.deepcopy(node.test)))
                read = Expression.parse(expr, values.keys())
                holds = bool(read.names) and read.holds(values)
            except ExpressionError:
                continue
            if holds:
                doc = f"asserted in {place.name}"
                found.setdefault(expr, Constraint(expr=expr, doc=doc))
    return list(found.values())


class _OverKnobs(ast.NodeTransformer):
    """Rewrites ``config.n_embd`` as ``n_embd``, and substitutes expressions for known names.

    :raises ExpressionError: at the first name that is neither known nor a knob, because known names
        before it can make the expression exponentially large.
    """

    def __init__(
        self, known: Mapping[str, ast.expr], knobs: Container[str], depth: int = 0
    ) -> None:
        self._known, self._knobs, self._depth = known, knobs, depth

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return self.visit_Name(ast.Name(node.attr, ast.Load()))

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self._knobs:
            return node
        if node.id not in self._known or self._depth == MAX_DEPTH:
            raise ExpressionError(f"{node.id} is not known")
        inner = copy.deepcopy(self._known[node.id])
        return _OverKnobs(self._known, self._knobs, self._depth + 1).visit(inner)


def _imported_values(script: Script, beside: Mapping[Path, ast.Module]) -> dict[str, ast.expr]:
    """Return the literals that the script imports by name from modules beside it."""
    found: dict[str, ast.expr] = {}
    known = {path.stem: first_values(tree) for path, tree in beside.items()}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                value = known[node.module].get(alias.name)
                try:
                    scalar = None if value is None else literal(value)
                except NotLiteralError:
                    continue
                if scalar is not None and not isinstance(scalar, tuple):
                    found[alias.asname or alias.name] = ast.Constant(scalar)
    return found
