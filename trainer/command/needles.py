"""Find texts without which a pattern cannot match a line.

A command may print millions of lines of which a few hold anything to read. Searching a large block
for a fixed text takes a hundredth of the time of matching a pattern against each of its lines. So
each pattern is reduced to texts of which every matching line holds at least one; lines without
them are skipped. Where a pattern has no such text, every line is read.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

try:
    from re import _parser  # type: ignore[attr-defined]  # the only reading of a pattern's parts
except ImportError:  # pragma: no cover (another Python: every line is read)
    _parser = None

ESCAPE = "\x1b"
_UNFIT = frozenset("-+.0123456789eEnNfFiI")
"""The first and last characters of a number, nan or inf."""
_PRINTABLE = range(0x20, 0x7F)


def needles(pattern: str, *, is_cleaned: bool = True) -> frozenset[str] | None:
    """Return ASCII texts of which every line that the pattern matches holds at least one; None if
    none are known.

    :param is_cleaned: the line is matched after a number's wrapping was removed from it, as by
        :class:`trainer.command.number.Number`. Then no text can be new in the cleaned line, unless
        the line held an escape sequence: the texts hold no character with which a number begins or
        ends, so none lies across an edge of what was removed.
    """
    if _parser is None:
        return None
    try:
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    if tree.state.flags & re.IGNORECASE:  # other letters may match an ASCII one
        return None
    try:
        return _of_sequence(tree, _UNFIT if is_cleaned else frozenset())
    except RecursionError:
        return None


def union(found: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """Return texts of which a line holds one if any of the patterns matches it."""
    whole: set[str] = set()
    for one in found:
        if one is None:
            return None
        whole |= one
    # A text that holds another one says nothing more.
    return frozenset(a for a in whole if not any(b != a and b in a for b in whole))


def holds(line: str, texts: frozenset[str]) -> bool:
    """Return whether a line holds one of the texts or an escape sequence."""
    return ESCAPE in line or any(text in line for text in texts)


def _of_sequence(
    parts: Iterable[tuple[object, Any]], unfit: frozenset[str]
) -> frozenset[str] | None:
    """Return the most telling texts of a sequence's parts."""
    found = [one for one in _of_parts(parts, unfit) if one]
    return max(found, key=lambda texts: min(map(len, texts)), default=None)


def _of_parts(
    parts: Iterable[tuple[object, Any]], unfit: frozenset[str]
) -> Iterator[frozenset[str] | None]:
    run = ""
    for kind, of in parts:
        name = str(kind)
        if name == "LITERAL" and isinstance(of, int) and of in _PRINTABLE and chr(of) not in unfit:
            run += chr(of)
            continue
        if run:
            yield frozenset((run,))
        run = ""
        match name, of:
            case "SUBPATTERN", (_, flags, _, inner) if not flags & re.IGNORECASE:
                yield _of_sequence(inner, unfit)
            case "ATOMIC_GROUP", inner:
                yield _of_sequence(inner, unfit)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, _, inner) if least:
                yield _of_sequence(inner, unfit)
            case "BRANCH", (_, branches):
                yield union(_of_sequence(one, unfit) for one in branches)
    if run:
        yield frozenset((run,))
