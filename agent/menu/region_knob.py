"""Define code knobs of a user's own script: ``[code.NAME]`` tables, each for one marked region.

    [code.activation]
    default = "x = torch.relu(x)"
    names = ["x", "torch", "relu"]
    doc = "between the two products of the feed-forward block; x has shape (batch, seq, width)"

Code for a region is refused if it is not whole statements, imports something, or uses a name that
is not its own, not in ``names`` and not one of torch's functions that every slot may use.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any, Self

from agent.menu.code_knob import CodeKnob, CodeSource
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import CODE, json_text
from trainer.code import MAX_CHARACTERS, MAX_LINES, allowed
from trainer.script.region_names import check_names
from trainer.script.regions import normalized
from trainer.spec import AnyConfig

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
