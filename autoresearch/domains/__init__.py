"""Kinds of domain that a knob may have, one class each.

A domain says which values it contains and why it refuses another, and draws values. It describes
itself in words, as a menu's table, as a JSON schema, as an Optuna distribution and as the cells of
a report. Nothing outside this package asks for a domain's kind. To add a kind, write a class
(:class:`~autoresearch.domains.base.Domain` lists its methods) and a line in :data:`KINDS`.

Domains live in the base package because ``agent`` searches them and ``trajectory`` reports on them,
and neither may import the other. Imported campaigns have domains but no menu. The trainer takes one
value of each field and needs no domains.
"""

from collections.abc import Mapping
from typing import Any

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices
from autoresearch.domains.ranges import RealRange, WholeRange

KINDS: Mapping[str, type[Domain]] = {
    "int": WholeRange,
    "float": RealRange,
    "choice": Choices,
}
"""Every kind by its ``type`` in a menu."""


def domain_keys() -> list[str]:
    """Return every key that some kind reads in a knob's table, ``type`` first."""
    fields = (name for kind in KINDS.values() for name in kind.model_fields)
    return list(dict.fromkeys(["type", *fields]))


def read_domain(table: Mapping[str, Any]) -> Domain:
    """Return the domain that a knob's table describes.

    :raises ValueError: one clause that names the key, the value seen and the fix.
    """
    if "type" not in table:
        raise ValueError("type: Field required")
    word = table["type"]
    if not isinstance(word, str) or word not in KINDS:
        *others, last = map(repr, KINDS)
        raise ValueError(f"type: Input should be {', '.join(others)} or {last} (got {word!r:.80})")
    domain = KINDS[word].read(table)
    if problem := domain.problem():
        raise ValueError(problem)
    return domain
