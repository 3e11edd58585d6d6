"""Define code knobs: a menu's ``[code.NAME]`` tables.

Without a ``[trainer]``, each is for one slot of the built-in GPT. With one, each is for one marked
region of the user's own script:

    [code.activation]
    default = "x = torch.relu(x)"
    names = ["x", "torch", "relu"]
    doc = "between the two products of the feed-forward block; x has shape (batch, seq, width)"

Code for a region is refused if it is not whole statements, imports something, or uses a name that
is not its own, not in ``names`` and not one of torch's functions that every slot may use.
"""

import ast
from collections.abc import Collection, Mapping
from typing import Any, Self

from agent.menu.knobs import Knob
from autoresearch.domains.choices import Choices
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import CODE, json_text
from trainer.code import (
    MAX_CHARACTERS,
    MAX_LINES,
    Slot,
    allowed,
    check_statically,
    normalize,
    slot_of,
)
from trainer.schema import AnyConfig, Config
from trainer.script.regions import check_names, normalized

CODE_KEYS = ("signature", "default", "doc")
"""Keys that a ``[code.NAME]`` table may have."""


class CodeSource(Choices):
    """Sources of one slot's function that the static rails pass; "" is what is built in."""

    name: str
    """The slot's, without ``code.``."""
    stated: str = ""
    """Normalized source that the menu states for what is built in; "" if it states none."""
    choices: tuple[str, ...] = ("",)
    """Normalized sources that a sampler draws from; a proposer may write any other."""

    @property
    def slot(self) -> Slot:
        """The slot."""
        return slot_of(self.name)

    def table(self) -> dict[str, Any]:
        return {"type": "code", "signature": self.slot.signature}

    def problem(self) -> str | None:
        return None

    def __str__(self) -> str:
        return f"the source of one function, {self.slot.signature}"

    def contains(self, value: object) -> bool:
        return self.why_not(value) is None

    def why_not(self, value: object) -> str | None:
        if not isinstance(value, str):
            return f"{json_text(value)} is not {self}"
        return check_statically(self.name, value)

    def normal(self, value: Scalar) -> Scalar:
        return normalize(self.slot, value) if isinstance(value, str) else value

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "maxLength": MAX_CHARACTERS}


class CodeKnob(Knob):
    """A knob whose value is the source of a function."""

    domain: CodeSource

    @property
    def signature(self) -> str:
        """First line of the function, without the colon."""
        return self.domain.slot.signature

    @property
    def contract(self) -> str:
        """Arguments of the function and what it must return, in sentences."""
        slot = self.domain.slot
        reads = ", ".join(f"{name} ({what})" for name, what in slot.reads.items())
        also = f" It may also use {reads}." if reads else ""
        return f"{slot.doc}{also} {self.doc}".strip()

    @property
    def limits(self) -> str:
        """Limits that the rails set, in sentences."""
        learns = (
            " Learned parameters are keyword-only arguments with a first value: *, slope=0.1 for "
            "one number, *, gain: D = 1.0 for one per column."
        )
        return (
            f"At most {MAX_LINES} lines. Use assignments, if, for i in range(5), return, operators "
            "and functions of torch, F and math on the arguments; no imports, texts, other names "
            f"or in-place changes.{learns if self.domain.slot.learns else ''}"
        )

    def why_not(self, value: object) -> str | None:
        """Return one sentence that begins with the knob's name, or None."""
        clause = self.domain.why_not(value)
        named = clause is None or clause.startswith(f"{self.name}: ")
        return clause if named else f"{self.name}: {clause}"

    def built_in(self, config: AnyConfig) -> str | None:
        """Return the function that a config runs without code of its own; None if it never calls
        one."""
        slot = self.domain.slot
        body = slot.body(config.value(slot.chosen_by) if slot.chosen_by else "")
        return None if body is None else normalize(slot, body)

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> Self:
        """Return the knob that a ``[code.NAME]`` table describes.

        Its default is what the slot has built in unless ``default`` is another function.

        :raises ValueError: one clause that names the key, the value seen and the fix.
        """
        slot = slot_of(name)
        if table.get("signature", slot.signature) != slot.signature:
            raise ValueError(
                f"its signature is {json_text(table['signature'])}; write {slot.signature}"
            )
        stated = table.get("default", "")
        if not isinstance(stated, str):
            raise ValueError(f"its default is {json_text(stated)}; write it as a text")  # noqa: TRY004
        if why := check_statically(name, stated):
            raise ValueError(f"its default cannot be used: {why}")
        stated = normalize(slot, stated)
        is_builtin = stated in {normalize(slot, body) for body in slot.builtin.values()}
        domain = CodeSource(name=slot.name, stated=stated if is_builtin else "")
        return cls(
            name=slot.key,
            domain=domain if is_builtin else domain.model_copy(update={"choices": ("", stated)}),
            default="" if is_builtin else stated,
            doc=table.get("doc", ""),
        )


def check_stated(knob: CodeKnob, baseline: Config) -> None:
    """Check that the function which a menu states as built in is what its baseline runs.

    :raises ValueError: one clause that names the knob and the fix.
    """
    slot, stated = knob.domain.slot, knob.domain.stated
    builtin = slot.body(getattr(baseline, slot.chosen_by, ""))
    if stated and builtin is not None and stated != normalize(slot, builtin):
        raise ValueError(
            f"{knob.name} states a default that belongs to another {slot.chosen_by}; write "
            f"default = {json_text(builtin)}, or leave it out"
        )


REGION_KEYS = ("default", "names", "doc")
"""Keys that a ``[code.NAME]`` table of a command's menu may have."""
KNOWN = frozenset().union(
    *(allowed.ELEMENTWISE, allowed.ELEMENTWISE_METHODS, allowed.ACTIVATIONS, allowed.NEW_TENSORS),
    *(allowed.RANDOM, allowed.WHOLE, allowed.LINALG, allowed.LOSSES, allowed.DIM_AT, allowed.MATH),
    *(allowed.OVER_SHAPE, allowed.ATTRIBUTES, allowed.WHOLE_ATTRIBUTES, allowed.CONSTANTS),
)
"""Functions and attributes of torch and math that every slot may use."""
_BUILTINS = frozenset("abs bool enumerate float int len max min range round sum tuple zip".split())


class RegionSource(CodeSource):
    """Statements that may replace one region of a script."""

    names: tuple[str, ...] = ()
    """Names that the code may use besides its own."""
    reserved: tuple[str, ...] = ()
    """Names that the menu sets, which the code may not assign."""

    def table(self) -> dict[str, Any]:
        return {"type": "code", "names": list(self.names)}

    def __str__(self) -> str:
        return f"the statements of slot {self.name}"

    def why_not(self, value: object) -> str | None:
        if not isinstance(value, str):
            return f"{json_text(value)} is not {self}"
        if len(value) > MAX_CHARACTERS or len(value.splitlines()) > MAX_LINES:
            return (
                f"the code is over {MAX_CHARACTERS:,} characters or {MAX_LINES} lines; shorten it"
            )
        try:
            bound = check_names(ast.parse(normalized(value)), {*self.names, *KNOWN, *_BUILTINS})
        except SpecError as error:
            return str(error)
        taken = sorted(bound & set(self.reserved))
        return f"the code assigns {taken[0]}, which the menu sets; rename it" if taken else None

    def normal(self, value: Scalar) -> Scalar:
        return normalized(value) if isinstance(value, str) else value


def names_used(code: str) -> list[str]:
    """Return the names that code uses and torch does not have, for the draft of its table."""
    used = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(ast.parse(code))}
    return sorted(name for name in used - {"", *KNOWN, *_BUILTINS} if not name.startswith("_"))


class RegionKnob(CodeKnob):
    """A knob whose value is the code of a region."""

    domain: RegionSource

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any], reserved: Collection[str]) -> Self:
        """Return the knob that a ``[code.NAME]`` table describes.

        :param reserved: names that the menu sets.
        :raises ValueError: one clause that names the key, the value seen and the fix.
        """
        default, names = table.get("default"), table.get("names", [])
        if not isinstance(default, str):
            raise ValueError(f"its default is {json_text(default)}; write the region's code")  # noqa: TRY004
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError(f"names is {json_text(names)}; write a list of names")
        domain = RegionSource(name=name, names=tuple(names), reserved=tuple(reserved))
        if why := domain.why_not(default):
            raise ValueError(f"its default cannot be used: {why}")
        code = normalized(default)
        domain = domain.model_copy(update={"choices": (code,)})
        return cls(name=CODE + name, domain=domain, default=code, doc=table.get("doc", ""))

    @property
    def signature(self) -> str:
        """See :attr:`CodeKnob.signature`."""
        return f"# the statements of slot {self.name}, at the left margin"

    @property
    def contract(self) -> str:
        """See :attr:`CodeKnob.contract`."""
        return f"{self.doc or 'A region of the script.'} It may use {', '.join(self.domain.names)}."

    @property
    def limits(self) -> str:
        """See :attr:`CodeKnob.limits`."""
        return (
            f"At most {MAX_LINES} lines of whole statements, which replace the present ones. Use "
            "its names and functions of torch; no imports, classes, other names or underscores."
        )

    def built_in(self, config: AnyConfig) -> str | None:
        """See :attr:`CodeKnob.built_in`."""
        return str(self.default)
