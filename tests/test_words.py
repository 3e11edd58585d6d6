"""Check the code's prose: no retired terms, and a subject or a verb in each docstring."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.support.places import ROOT

PACKAGES = ("agent", "autoresearch", "bench", "funnel", "trainer", "trajectory")

NO_SUBJECT = frozenset("Of That What Who Where Whose Which As".split())
"""Words that a docstring must not begin with."""

PROSE = {
    r"rulers?": "evaluation protocol",
    r"sittings?": "session",
    r"(?<!in-)(?<!in )(?<!pre-)flights?": "in-flight iteration",
    r"(?:looks?|looked|looking|runs?|running|ran) ahead": "speculative trial",
    r"undertakers?|bury|buries|buried": "reaper, reap",
    r"kernel_attacks?": "lock",
    r"clerks?": "writer thread",
    r"likeness(?:es)?": "shape check",
    r"(?:go|goes|going|gone|went) on with": "resume, continue",
    r"(?:stand|stands|stood) it": "survive",
    r"cellars?|rooms|houses?": "base package, packages, architecture",
    r"foretell|foretells|foretold": "predict",
    r"(?:is|are|was|were|be|been|being) told": "reported",
    r"told of": "reported",
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"entrants?|contestants?": "candidates",
    r"leftovers?|taken up|took up": "orphaned trials, resumed",
    r"hopeless|hope|hopes|hoped": "futility bound",
    r"lookers?-on|onlookers?": "viewers",
    r"first drop": "early-stopping threshold",
    r"set aside|sets aside|held back|holds? back": "holdout split",
    r"(?:be|is|are|was|were|been) believed": "trusted, estimated",
    r"courses?": "trial schedule",
}
"""Retired terms in docstrings, comments and messages, each with the word to use."""

IDENTIFIERS = set(
    "ruler rulers sitting sittings flight flights turn turns course courses undertaker bury buried"
    " door look looks entrant entrants contestant contestants leftover leftovers hopeless hope mend"
    " mends rooms house cellar ahead aside clerk foretold likeness nobody told way ways"
    " worked".split()
)
"""Retired words as parts of the names of modules, classes, functions and variables."""

PHRASES = ("first_drop", "hold_back", "held_back")
"""Retired terms of two words in names."""

ALLOWED = {
    "in_flight": "the field's term for work that has begun and not ended",
}
"""Names, or parts of them, that hold a retired word and stay; with the reason."""

EXCEPTIONS = {
    ("trajectory/confirmed.py", "ruler"): "the former name of a text in stored rows",
    ("trainer/corpus/second_text.py", "set aside"): "the name of the text in stored rows",
    ("trajectory/confirmed.py", "set aside"): "the name of the text in stored rows",
}
"""Findings that stay: their module, the words found, and the reason."""

_PROSE = re.compile(
    rf"\b(?:{'|'.join(f'(?P<t{n}>{term})' for n, term in enumerate(PROSE))})\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def findings(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield the findings of one module, in the order of the checks."""
    name = str(path.relative_to(root))
    source = path.read_text("utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    for line, text in (*_names(nodes), *_docstrings(nodes), *_prose(nodes, source)):
        if not any(name == at and words in text for at, words in EXCEPTIONS):
            yield f"{name}:{line}: {text}"
    for part in (path.stem, *path.relative_to(root).parts[:-1]):
        if (text := _retired_name(part)) is not None:
            yield f"{name}:1: module {text}"


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield retired names where they are defined, not where they are used."""
    for node in nodes:
        name = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        if name is not None and (text := _retired_name(name)) is not None:
            yield node.lineno, text


def _retired_name(name: str) -> str | None:
    plain = "_".join(word.lower() for word in _WORD.findall(name))
    for allowed in ALLOWED:
        plain = plain.replace(allowed, "")
    retired = [phrase for phrase in PHRASES if phrase in plain]
    retired += [word for word in plain.split("_") if word in IDENTIFIERS]
    return f"{name}: {retired[0]} is retired" if retired else None


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield docstrings without a subject, those below attributes and constants included."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if text.strip():
                first = text.split()[0].strip(",;:")
                if first in NO_SUBJECT:
                    yield node.lineno, f'docstring begins with "{first}"'


def _prose(nodes: Iterable[ast.AST], source: str) -> Iterator[tuple[int, str]]:
    """Yield retired terms in comments, docstrings and other string literals of several words."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(_lines(node.value)):
                yield from _terms(line, node.lineno + number)
    comments = "\n".join(line.partition("#")[2] for line in source.splitlines())
    if _PROSE.search(comments) is None:
        return  # tokenizing is slow
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _terms(token.string, token.start[0])


def _lines(text: str) -> list[str]:
    """Split a literal into lines, each with the first word of the next one's phrase."""
    lines = text.split("\n")
    tails = [*(line.lstrip() for line in lines[1:]), ""]
    return [f"{line} {tail.split(' ')[0]}" for line, tail in zip(lines, tails, strict=True)]


def _terms(text: str, line: int) -> Iterator[tuple[int, str]]:
    for match in _PROSE.finditer(text):
        better = list(PROSE.values())[int(str(match.lastgroup)[1:])]
        yield line, f'"{match.group()}": use {better}'


def test_no_module_holds_a_retired_term() -> None:
    paths = chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES)
    found = [finding for path in sorted(paths) for finding in findings(path)]
    assert not found, "\n".join(found)


def test_every_docstring_of_the_tests_begins_with_a_subject_or_a_verb() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, text in _docstrings(ast.walk(ast.parse(path.read_text("utf-8"))))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "is_plain"),
    [
        ('"""Return what is in flight, and the free room in bytes."""\n', True),
        ("in_flight = lookup = dropout = 1\n", True),
        ('KEY = "ruler"  # a single word is data\n', True),
        ("import course\n", True),
        ('"""Of a trial."""\n', False),
        ('def f():\n    """That it ends."""\n', False),
        ('A = 1\n"""Where it is."""\n', False),
        ("class Undertaker:\n    pass\n", False),
        ("def look_ahead(): ...\n", False),
        ("def f(entrant): ...\n", False),
        ("# mends the file\n", False),
        ('"""Describe the\nruler."""\n', False),
        ('raise ValueError("the file is told\\nof by name")\n', False),
        ('f"{0} is gone on with"\n', False),
    ],
)
def test_findings_are_found_and_terms_pass(tmp_path: Path, source: str, is_plain: bool) -> None:
    (tmp_path / "module.py").write_text(source, "utf-8")
    assert (not list(findings(tmp_path / "module.py", tmp_path))) == is_plain
