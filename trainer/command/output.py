"""Read a command's output: the lines that it prints, and a file of scores.

Lines hold a curve, scores, and reasons for failure. They are untrusted and bounded before anything
reads them. The patterns were written for the menu, not by the script. One that takes forever on a
hostile line uses the trial's own time, since this runs in the trial's process.

A pattern such as ``val loss ([0-9.]+)`` describes a valid number, and a diverged run prints ``val
loss nan``. So each pattern has a twin whose number group matches nan and inf, and a match of the
twin is a score that is not finite.
"""

import csv
import json
import math
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autoresearch.files import read_given
from autoresearch.safe_text import plain
from trainer.spec import Command, ScoreRule, Take

MAX_LINE_BYTES = 1 << 14
"""Bytes of a line to read."""
SHOWN_LINES = 5
SHOWN_CHARACTERS = 240
OUT_OF_MEMORY = (
    r"out of memory",
    r"OutOfMemoryError",
    r"\bMemoryError\b",
    r"can't allocate memory",
    r"Cannot allocate memory",
    r"std::bad_alloc",
    r"RESOURCE_EXHAUSTED",
)
"""Messages of PyTorch, Python, the C++ runtime and JAX."""
_NOT_FINITE = r"(?i:[-+]?(?:nan|inf(?:inity)?)(?!\w))"
_DIGITS_GO_ON = re.compile(r"\d|[eE][-+]?\d|\.\d")
_WITH_COMMA = re.compile(r"[-+]?\d+,\d")
_BEGUN_BEFORE = re.compile(r"(?:\d\.?|(?:^|[\s:=(\[{,'\"])-)$")
"""Context of a partial number: digits, a decimal comma, its sign."""
_WORD_GOES_ON = re.compile(r"[^\W\d]")
_UNIT = re.compile(r"[\w\[]|\(\?:\w")
"""A word behind a number, and how a pattern expects one."""
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})(?!\w|[.,]\d)")
"""Commas that certainly separate thousands; 3,200 may have a decimal comma."""
_WHOLE = re.compile(r"[-+\w.,]+")
_ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])"
_WRAPPED = (
    r"\b(?:\w+\.)?(?:[tT]ensor|[aA]rray|b?float\d+|u?int\d+)\(\s*\[*\s*"
    r"([-+]?\d[-+.\deE]*|(?i:[-+]?(?:nan|inf)))\s*\]*(?:,\s*\w+=[^()]*(?:\([^()]*\))?[^()]*)?\)"
)
_ARRAY = r"(?<![\w\])])\[+\s*([-+]?\d*\.[\d.]*(?:e[-+]?\d+)?|(?i:[-+]?(?:nan|inf)))\s*\]+"
_CLEANED = (
    (re.compile(_ESCAPES), "", r"\\x1b|\\0?33|\x1b"),
    (re.compile(_WRAPPED), r"\1", r"ensor|rray|float|int\d"),
    (re.compile(_ARRAY), r"\1", r"\\[\[\]]"),
)
"""Parts removed from a line unless the pattern mentions them: colors, ``tensor(…)`` or
``np.float64(…)`` around a number, and the brackets of an array of one."""
_END = re.compile(rb"[\r\n]")


class Lines:
    """Splits bytes into lines, wherever they are cut; a carriage return ends a line too."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines completed by ``data``."""
        data = self._unread + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._unread, data = data[end : end + MAX_LINE_BYTES], data[:end]
        lines = (line[:MAX_LINE_BYTES] for line in _END.split(data) if line)
        yield from (line.decode("utf-8", "replace") for line in lines)

    def rest(self) -> Iterator[str]:
        """Yield the last line if it has no end."""
        if self._unread:
            yield self._unread.decode("utf-8", "replace")
        self._unread = b""


class Number:
    """Finds one group of a pattern, as a number, in a line."""

    def __init__(self, pattern: str, group: int = 1) -> None:
        self._found = re.compile(pattern)
        self._cleaned = [(one, to) for one, to, said in _CLEANED if not re.search(said, pattern)]
        self._group = group
        span = _group_span(pattern, group)
        self._lost: re.Pattern[str] | None = None
        """The twin, whose group matches the words for nan and inf."""
        if span is not None:
            with suppress(re.error):
                twin = re.compile(pattern[: span[0]] + _NOT_FINITE + pattern[span[1] :])
                self._lost = twin if twin.groups >= group else None
        end = len(pattern) if span is None else span[1]
        self._names_unit = _UNIT.match(pattern, end + 1) is not None
        self.cut = ""
        """First number of which the pattern matched only a part."""

    def search(self, line: str) -> tuple[re.Match[str], float] | None:
        """Return the first match and its number, which may be nan or infinite; or None.

        A number that continues as a word (``3.2abc``) does not count.
        """
        for cleaned, to in self._cleaned:
            line = cleaned.sub(to, line)
        match = self._found.search(line)
        if match is not None:
            begin, end = match.span(self._group)
            thousands = _THOUSANDS.match(line, begin)
            number = number_in(thousands[0] if thousands else match[self._group])
            if number is not None:
                if not thousands and _is_cut(line, begin, end):
                    while begin and _WHOLE.fullmatch(line[begin - 1]):
                        begin -= 1
                    whole = _WHOLE.match(line, begin)
                    self.cut = self.cut or (whole[0].rstrip(".,") if whole else "")
                elif not thousands and not self._names_unit and _WORD_GOES_ON.match(line, end):
                    return None
                return match, number
        if self._lost is not None and (match := self._lost.search(line)) is not None:
            number = number_in(match.group(self._group))
            if number is not None:
                return match, number
        return None


class Printed:
    """Summary of everything printed."""

    def __init__(self, command: Command) -> None:
        self._command = command
        score, curve = command.score, command.curve
        self._score = None if score.pattern is None else Number(score.pattern)
        self._curve: Number | None = None
        self._step = 1
        if curve is not None:
            named = re.compile(curve.pattern).groupindex
            loss = named.get("loss", 3 - named["step"] if "step" in named else 2)
            self._step = 3 - loss
            self._curve = Number(curve.pattern, loss)
        self._oom = [re.compile(each) for each in ("|".join(OUT_OF_MEMORY), *command.oom)]
        self.last: deque[str] = deque(maxlen=SHOWN_LINES)
        """Last nonblank lines."""
        self.scores: list[float] = []
        """Scores in order, those that are not finite included. Of very many, both ends are kept."""
        self.out_of_memory = ""
        """Line that reports running out of memory."""

    def take(self, line: str) -> tuple[int, float] | None:
        """Add a line, and return its point of the curve, if any."""
        if line.strip(" ^~"):  # ignore lines that only underline the previous one in a traceback
            self.last.append(line[:SHOWN_CHARACTERS])
        if not self.out_of_memory and any(one.search(line) for one in self._oom):
            self.out_of_memory = line[:SHOWN_CHARACTERS]
        if self._score is not None and (found := self._score.search(line)) is not None:
            self.scores.append(found[1])
            if len(self.scores) > _MOST_SCORES:
                del self.scores[_MOST_SCORES // 2]
        if self._curve is None or (found := self._curve.search(line)) is None:
            return None
        step = number_in(found[0].group(self._step))
        if step is None or not 0 <= step < 2**53 or step != int(step):
            return None
        return int(step), found[1]

    @property
    def cut(self) -> str:
        """A score of which the pattern matched only a part; empty if none."""
        return "" if self._score is None else self._score.cut[:SHOWN_CHARACTERS]

    @property
    def last_lines(self) -> str:
        """Last lines joined to one, made plain."""
        return " | ".join(plain(line).strip() for line in self.last)


_MOST_SCORES = 100_000


def _is_cut(line: str, begin: int, end: int) -> bool:
    """Return whether the digits from ``begin`` to ``end`` are a part of a longer number."""
    comma = _WITH_COMMA.match(line, begin)
    return bool(
        _DIGITS_GO_ON.match(line, end)
        or (comma and comma.end() == end + 2)
        or _BEGUN_BEFORE.search(line, max(0, begin - 2), begin)
    )


def number_in(text: str | None) -> float | None:
    """Return the number that a text is, ignoring a full stop at its end."""
    whole = (text or "").strip().rstrip(".,;")
    try:
        return float(whole.replace(",", "") if _THOUSANDS.fullmatch(whole) else whole)
    except ValueError:
        return None


def taken(scores: list[float], take: Take) -> float | None:
    """Return the score that a rule selects: None if there is none, nan if any considered score is
    not finite."""
    if not scores:
        return None
    if take in {"lowest", "highest"}:
        # NaN compares as neither; a diverged run has no best score.
        lost = [score for score in scores if score - score != 0]
        chosen = min(scores) if take == "lowest" else max(scores)
        return lost[0] if lost else chosen
    return scores[0] if take == "first" else scores[-1]


def _group_span(pattern: str, group: int) -> tuple[int, int] | None:
    """Return the bounds of the inside of the ``group``-th capturing group."""
    opened: list[tuple[int, int]] = []
    """Number of each open group, 0 if it does not capture, and its start."""
    number, in_class, at = 0, False, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
            at += pattern.startswith(("[]", "[^]"), at) and (2 if pattern[at + 1] == "^" else 1)
        elif character == "(":
            name = re.match(r"\(\?P<\w+>", pattern[at:])
            captures = name is not None or not pattern.startswith("(?", at)
            number += captures
            opened.append((number if captures else 0, at + (name.end() if name else 1)))
        elif character == ")" and opened:
            which, begins = opened.pop()
            if which == group:
                return begins, at
        at += 1
    return None


# --- the file of scores --------------------------------------------------------------------------

MAX_FILE_BYTES = 8 << 20


def scores_in(out: Path, rule: ScoreRule) -> list[float]:
    """Return the numbers under the rule's key, in the file's order; none if there is no such file.

    No link is followed: this run did not write its target.
    """
    if rule.file is None or rule.key is None:
        return []
    try:
        data = read_given(out / rule.file, MAX_FILE_BYTES, through_links=False)
    except OSError:
        return []
    if rule.file.endswith((".csv", ".tsv")):
        return list(_column(data.decode("utf-8-sig", "replace"), rule.key))
    found = []
    for text in data.splitlines() if rule.file.endswith(".jsonl") else [data]:
        with suppress(ValueError, RecursionError):
            found.append(_under(json.loads(text), rule.key))
    return [number for number in found if number is not None]


def _column(text: str, key: str) -> Iterator[float]:
    """Yield the values of a column that are not empty; nan for invalid numbers."""
    lines = text.splitlines()
    delimiter = max(",\t;", key=lines[0].count) if lines else ","
    for row in csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True):
        value = (row.get(key) or "").strip()
        if value:
            number = number_in(value)
            yield math.nan if number is None else number


def _under(document: object, key: str) -> float | None:
    """Return the number at a key; its dots select nested keys if it is not a key itself."""
    whole = isinstance(document, dict) and key in document
    for part in [key] if whole else key.split("."):
        if not isinstance(document, dict) or part not in document:
            return None
        document = document[part]
    if isinstance(document, bool) or not isinstance(document, int | float):
        return None
    with suppress(OverflowError):
        return float(document)
    return None
