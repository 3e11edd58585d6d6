"""Set a script's constants to other values, and its slots to other code, in a copy of its text."""

import ast
import math
import warnings
from collections.abc import Mapping

from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import CODE, did_you_mean, json_text
from trainer.script.constants import Constant, assigned_lines, constants
from trainer.script.nested import nested
from trainer.script.regions import regions, replaced


def edited(source: str, values: Mapping[str, Scalar]) -> str:
    """Return the script with these constants and slots set, and every other character unchanged.

    :param values: by the names that :func:`settings` gives; code by the name of its slot, as in
        ``code.activation``.
    :raises SpecError: if the script is not Python, if it has no such constant, or if a value cannot
        be written down.
    """
    script_tree(source)
    codes = {name: str(code) for name, code in values.items() if name.startswith(CODE)}
    text = replaced(source, {name.removeprefix(CODE): code for name, code in codes.items()})
    values = {name: value for name, value in values.items() if name not in codes}
    known = settings(text)
    places = [(_known(text, known, name), value) for name, value in values.items()]
    # From the end, so that replacements do not move what is still to be found.
    places.sort(key=lambda one: (one[0].node.lineno, one[0].node.col_offset), reverse=True)
    for constant, value in places:
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(
                f"{constant.name} = {value} cannot be written into a script; give a finite number"
            )
        text = _replaced(text, constant.node, repr(value))
    found = settings(text)
    now = {name: (type(one.value), one.value) for name, one in found.items()}
    wrong = [name for name, value in values.items() if now.get(name) != (type(value), value)]
    if wrong or list(found) != list(known):
        raise SpecError(
            f"the script could not be rewritten so that {', '.join(wrong) or 'only that'} changes; "
            "give the values as arguments instead"
        )
    return text


def settings(source: str) -> dict[str, Constant]:
    """Return everything outside the script's slots that can be set, by its name in a menu.

    :raises SpecError: if the script or its slots cannot be read.
    """
    tree = script_tree(source)
    slots = [range(one.begin, one.end) for one in regions(source).values()]
    own = {
        name: one
        for name, one in constants(tree).items()
        if not any(one.line in lines for lines in slots)
    }
    return own | nested(tree, own, slots)


def script_tree(source: str) -> ast.Module:
    """Parse a script without running it.

    :raises SpecError: if it is not valid in this interpreter's Python version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the script's strings
            return ast.parse(source)
    except SyntaxError as error:
        raise SpecError(
            f"the script is not valid Python: {error.msg} on line {error.lineno}; "
            "give a script for this version of Python"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"the script cannot be read: {error}; give a Python script") from error


def _known(source: str, known: Mapping[str, Constant], name: str) -> Constant:
    if name in known:
        return known[name]
    if lines := ", ".join(map(str, assigned_lines(script_tree(source), name))):
        raise SpecError(
            f"{name} cannot be set: the script computes it, or assigns it in a block or several "
            f"times (line {lines}); assign it once, as a constant at the top"
        )
    raise SpecError(f"the script has no constant {json_text(name)}{did_you_mean(name, known)}")


def _replaced(text: str, node: ast.expr, written: str) -> str:
    """Return the text with an expression replaced."""
    assert node.end_lineno is not None
    # The parser counts columns in bytes, and lines as bytes.splitlines does, not str.splitlines.
    lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
    before = [*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]]
    after = [lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]]
    return b"".join([*before, written.encode(), *after]).decode("utf-8", "surrogatepass")
