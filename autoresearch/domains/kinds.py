"""Register the kinds of domain and read a knob's table of a menu."""

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
