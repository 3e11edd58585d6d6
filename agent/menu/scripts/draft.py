"""A drafted menu as the text of a TOML file, for a person to prune."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agent.menu.proxy_menu import Constraint
from agent.menu.scripts.asserts import constraints_asserted
from agent.menu.scripts.printed.lines import NUMBER, Printed, curve_printed, score_printed
from agent.menu.scripts.reading import Script
from agent.menu.scripts.roles import given_by, says, words_of
from agent.menu.scripts.sorting import Given, Held, Left, Place, Turned, sorted_options
from agent.menu.scripts.toml_text import (
    as_it_is,
    braced,
    constraint_lines,
    knob_lines,
    literal,
    toml,
)
from autoresearch.plain_text import plain
from autoresearch.values import Scalar
from trainer.spec import BITS_PER_BYTE, BPB

USUAL_STEPS = 60
USUAL_HORIZON = 1000
MOST_DIGITS = 12


@dataclass(frozen=True)
class Draft:
    """What was drafted from a script."""

    script: Script
    directory: str
    """Of the script, as the menu says it."""

    @cached_property
    def places(self) -> list[Place]:
        """Every option of the script, sorted."""
        return sorted_options(self.script)

    @property
    def knobs(self) -> list[Turned]:
        """The knobs, in the order of the text."""
        return [place for place in self.places if isinstance(place, Turned)]

    @property
    def constants(self) -> list[Held]:
        """The constants, in the order of the text."""
        return [place for place in self.places if isinstance(place, Held)]

    @property
    def given(self) -> list[Given]:
        """What the machinery gives."""
        return [place for place in self.places if isinstance(place, Given)]

    @property
    def left(self) -> list[Left]:
        """What the script keeps as it has it."""
        return [place for place in self.places if isinstance(place, Left)]

    @cached_property
    def score(self) -> Printed | None:
        """Where the script prints its score."""
        return score_printed(self.script.tree)

    @cached_property
    def curve(self) -> Printed | None:
        """Where the script prints its curve."""
        return curve_printed(self.script.tree)

    @cached_property
    def constraints(self) -> list[Constraint]:
        """What the script asserts of the knobs, and that a schedule ends no higher than it was."""
        values: dict[str, Scalar] = {one.option.name: one.value for one in self.constants}
        values |= {one.knob.name: one.knob.default for one in self.knobs}
        turned = {one.knob.name for one in self.knobs}
        asserted = constraints_asserted(self.script, values)
        kept = [one for one in asserted if turned & set(words_in(one.expr))]
        return kept + list(_rates_in_order(values))

    @property
    def to_do(self) -> list[str]:
        """What a person must mend before the menu can be used, or should know, a clause each."""
        told = [
            f"{place.option.name} (line {place.option.line}): {place.why}; add it to the command"
            for place in self.left
            if place.option.required
        ]
        if self.score is None:
            told.append("no line that prints a score was found: say under score how it is printed")
        elif self.score.is_training:
            told.append(
                "no line that prints a validation score was found, and one of training is taken"
            )
        if any("{steps}" in one.template for one in self.given):
            told += [
                f"{one.knob.name} is {one.knob.default}, a trial has {self.steps} steps: lower it"
                for one in self.knobs
                if isinstance(one.knob.default, int)
                and one.knob.default > self.steps
                and says(one.knob.name, "warm ?up|warm ?down|cool ?down")
            ]
        if not any("{seed}" in one.template for one in self.given):
            told.append(
                "the script takes no seed: every run of a config may be the same, and then nothing "
                "is known of its noise"
            )
        return told

    @property
    def lengths(self) -> list[str]:
        """Where a trial is of another length than the script's own, a clause each."""
        return [
            f"{one.option.name} is {one.option.default} in the script, and a trial has {self.steps}"
            for one in self.given
            if one.template == given_by(one.option) == "{steps}"
            and one.option.default not in (None, self.steps)
        ]

    @property
    def steps(self) -> int:
        """How long a trial is, where the script is told it in steps."""
        return self._by_hand("{steps}") or USUAL_STEPS

    def _by_hand(self, template: str) -> int | None:
        """What a person gives by hand where the machinery will."""
        for one in self.given:
            if given_by(one.option) == template and one.option.name in self.script.by_hand:
                return one.option.default if isinstance(one.option.default, int) else None
        return None

    @cached_property
    def text(self) -> str:
        """The menu."""
        blocks = [
            self._head(),
            self._trainer(),
            *(knob_lines(one) for one in self.knobs),
            list(self._constants()),
            *(constraint_lines(one) for one in self.constraints),
            list(self._campaign()),
            list(self._replaced()),
            list(self._left_over()),
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    # --- its parts ------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        name = self.script.path.name
        return [
            f"# Drafted from {plain(name)}, which was read and not run. Prune it: remove the knobs",
            "# that are no question, narrow the others, and mind the words TO DO.",
            *(f"# TO DO: {one}" for one in self.to_do),
            f"name = {toml(self._name())}",
            f"doc = {toml(f'the options of {plain(name)}')}",
        ]

    def _name(self) -> str:
        path = self.script.path.resolve()
        parts = [path.parent.name] if path.stem in {"main", "train"} else []
        return plain("-".join([*parts, path.stem]))[:64].strip() or "script"

    def _trainer(self) -> list[str]:
        score, curve = self.score, self.curve
        pattern = score.pattern if score else f"TO DO {NUMBER}"
        unit = (score.label if score else "") or "score"
        if unit == BITS_PER_BYTE:  # which is claimed only by whoever counts the bytes
            unit = f"{unit}, as printed"
        lines = [
            "[trainer]",
            "command = [",
            f"    {toml('python' if shutil.which('python') else '{python}')},",
            f"    {toml(self.script.path.name)},",
        ]
        lines += [f"    {toml(braced(word))}," for word in self.script.words]
        lines += [f"    {toml(word)},{note}" for word, note in self._words()]
        lines += ["]", f"directory = {toml(self.directory)}"]
        if env := dict(self._variables()):
            said = ", ".join(f"{name} = {toml(value)}" for name, value in env.items())
            lines.append(f"env = {{ {said} }}")
        if self.script.means == "edit":
            lines.append('set_by = "edit"')
            said = ", ".join(f"{one.option.name} = {toml(one.template)}" for one in self.given)
            lines += [f"edits = {{ {said} }}"] if said else []
        line = f"  # line {score.line}" if score else ""
        lines.append(f'score = {{ pattern = {literal(pattern)}, take = "last" }}{line}')
        lines.append(f"unit = {toml(unit)}")
        lines.append(
            f'direction = "{"maximise" if score and score.more_is_better else "minimise"}"'
        )
        lines += self._digits()
        if curve:
            lines.append(f"curve = {{ pattern = {literal(curve.pattern)} }}  # line {curve.line}")
        return lines

    def _digits(self) -> list[str]:
        """As many decimals as the script prints. No fewer than usual: a mean of several runs is
        finer than what one of them prints."""
        printed = self.score and self.score.decimals
        if not printed or printed <= BPB.digits:
            return []
        return [f"digits = {min(printed, MOST_DIGITS)}  # as printed"]

    def _words(self) -> Iterator[tuple[str, str]]:
        """The words of the command that say a value, with a comment each."""
        for place in self.places:
            option = place.option
            if not option.argument or isinstance(place, Left):
                continue
            word = option.argument
            if isinstance(place, Given):
                word = word.replace(f"{{{option.name}}}", place.template)
            yield word, f"  # line {option.line}"

    def _variables(self) -> Iterator[tuple[str, str]]:
        for place in self.places:
            if place.option.variable and not isinstance(place, Left):
                own = f"{{{place.option.name}}}"
                yield place.option.variable, place.template if isinstance(place, Given) else own

    def _constants(self) -> Iterator[str]:
        if self.constants:
            yield "[constants]"
        for one in self.constants:
            yield f"{one.option.name} = {toml(one.value)}  # line {one.option.line}: {one.why}"

    def _campaign(self) -> Iterator[str]:
        steps = any("{steps}" in one.template for one in self.given)
        seconds = any("{seconds}" in one.template for one in self.given)
        yield "[campaign]"
        if steps:
            own = "".join(f"; {plain(each)}" for each in self.lengths)
            yield f'budget = "{self.steps} steps"  # what {{steps}} stands for{own}'
            horizon = self._by_hand("{horizon}") or max(USUAL_HORIZON, self.steps)
            if any("{horizon}" in one.template for one in self.given):
                yield f"horizon_steps = {horizon}  # what {{horizon}} stands for"
        elif seconds:
            yield 'budget = "300 seconds"  # what {seconds} stands for'
        else:
            yield 'budget = "1 run"  # as long as the script runs by itself'

    def _replaced(self) -> Iterator[str]:
        if self.given:
            yield "# Given for each trial, instead of the script's own:"
        for one in self.given:
            yield f"#   {as_it_is(one.option)}: {plain(one.why)}"

    def _left_over(self) -> Iterator[str]:
        if self.left:
            yield "# Left as the script has them:"
        for place in self.left:
            yield f"#   {as_it_is(place.option)}: {plain(place.why)}"


def draft_of(script: Script, menu: Path | None) -> Draft:
    """The draft of a script's menu.

    :param menu: where the menu will be: its directories are relative to its own.
    """
    own = script.path.resolve().parent
    base = (menu.resolve() if menu is not None else Path.cwd() / "menu.toml").parent
    directory = os.path.relpath(own, base) if own.is_relative_to(base) else str(own)
    return Draft(script, directory)


def words_in(expression: str) -> list[str]:
    """The names in an expression."""
    return [
        word
        for word in expression.replace("(", " ").replace(")", " ").split()
        if word.isidentifier()
    ]


def _rates_in_order(values: dict[str, Scalar]) -> Iterator[Constraint]:
    """``min_lr <= lr``, where there are both and it holds."""
    names = {words_of(name): name for name in values}
    for least in ("min lr", "min learning rate", "lr min"):
        for rate in ("learning rate", "lr", "max lr"):
            if least in names and rate in names:
                low, high = values[names[least]], values[names[rate]]
                if isinstance(low, float) and isinstance(high, float) and low <= high:
                    expr = f"{names[least]} <= {names[rate]}"
                    yield Constraint(expr=expr, doc="the rate falls to its least")
                    return
