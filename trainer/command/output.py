"""Read a command's output: the lines that it prints, and a file of scores.

Lines hold a curve, scores, and reasons for failure (:mod:`trainer.command.reason`). They are
untrusted and bounded before anything reads them.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from autoresearch.files import read_given
from trainer.command.number import ESCAPE, FILE_MARK, Number, needle, number_in
from trainer.command.out_of_memory import OUT_OF_MEMORY
from trainer.command.raised import SHOWN_CHARACTERS
from trainer.command.reason import Ends
from trainer.schema import Command, ScoreRule, Take

MAX_LINE_BYTES = 1 << 14
"""Bytes of a line to read."""


class Lines:
    """Splits bytes into lines, wherever they are cut; a carriage return ends a line too."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines completed by ``data``."""
        return lines_of(self.whole(data))

    def whole(self, data: bytes) -> bytes:
        """Return the lines completed by ``data``, undivided, each with its end."""
        data = self._unread + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._unread = data[end : end + MAX_LINE_BYTES]
        return data[:end]

    def rest(self) -> Iterator[str]:
        """Yield the last line if it has no end."""
        if self._unread:
            yield self._unread.decode("utf-8", "replace")
        self._unread = b""


def lines_with(data: bytes, texts: Set[str]) -> Iterator[str]:
    """Yield those lines of :func:`lines_of` that hold one of the texts or an escape sequence."""
    if b"\r" in data:
        data = data.replace(b"\r", b"\n")
    ends: dict[int, int] = {}
    """Ends of the lines found, by their starts."""
    for text in (ESCAPE, *texts):
        sought = text.encode()
        at = data.find(sought)
        while at >= 0:
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            ends[data.rfind(b"\n", 0, at) + 1] = end
            at = data.find(sought, end)
    for begin, end in sorted(ends.items()):
        yield data[begin : min(end, begin + MAX_LINE_BYTES)].decode("utf-8", "replace")


def lines_of(data: bytes) -> Iterator[str]:
    """Yield the lines of bytes that are not blank, each up to its limit."""
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if line:
            yield line[:MAX_LINE_BYTES].decode("utf-8", "replace")


class Printed:
    """Summary of everything printed."""

    def __init__(self, command: Command) -> None:
        self._lines = Lines()
        score, curve = command.score, command.curve
        self._score = None if score.pattern is None else Number(score.pattern)
        self._curve: Number | None = None
        self._step = 1
        if curve is not None:
            named = re.compile(curve.pattern).groupindex
            loss = named.get("loss", 3 - named["step"] if "step" in named else 2)
            self._step = 3 - loss
            self._curve = Number(curve.pattern, loss)
        self._oom = [re.compile(each) for each in command.oom]
        patterns = [one.pattern for one in (score, curve) if one and one.pattern]
        self._needles = {needle(one) for one in (*patterns, *command.oom)}
        """Texts of which a line holds one, or an escape sequence, if anything in it is sought; an
        empty one is in every line."""
        self.ends = Ends()
        """Its first and its last output."""
        self.scores: list[float] = []
        """Scores in order, those that are not finite included. Of very many, both ends are kept."""
        self.out_of_memory = ""
        """Line that reports running out of memory."""

    def feed(self, data: bytes) -> Iterator[tuple[int, float]]:
        """Add output, and yield the curve's points in the lines that it completes."""
        self.ends.add(data)
        whole = self._lines.whole(data)
        # A command may print gigabytes: lines that no pattern can match are not read one by one.
        every = "" in self._needles
        lines = lines_of(whole) if every else lines_with(whole, {*self._needles, *OUT_OF_MEMORY})
        yield from filter(None, map(self.take, lines))

    def rest(self) -> Iterator[tuple[int, float]]:
        """Yield the point of the last line if that has no end."""
        yield from filter(None, map(self.take, self._lines.rest()))

    def take(self, line: str) -> tuple[int, float] | None:
        """Add a line, and return its point of the curve, if any."""
        if not self.out_of_memory and self._says_out_of_memory(line):
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

    def _says_out_of_memory(self, line: str) -> bool:
        known = any(text in line for text in OUT_OF_MEMORY)
        return known or any(pattern.search(line) for pattern in self._oom)

    @property
    def cut(self) -> str:
        """A score of which the pattern matched only a part; empty if none."""
        return "" if self._score is None else self._score.cut[:SHOWN_CHARACTERS]


_MOST_SCORES = 100_000


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


# --- the file of scores --------------------------------------------------------------------------

MAX_FILE_BYTES = 8 << 20
_MOST_FILES = 1000
_MOST_KEYS = 100


def scores_in(out: Path, rule: ScoreRule) -> list[float]:
    """Return the numbers under the rule's key, in the file's order; none without such a file."""
    return numbers_in(out / rule.file).get(rule.key or "", []) if rule.file else []


def numbers_in(path: Path) -> dict[str, list[float]]:
    """Return the numbers in a file of JSON, JSON lines or columns, by their keys, in its order; the
    keys of nested tables are joined by dots.

    No link is followed: this run did not write its target.
    """
    found: dict[str, list[float]] = {}
    try:
        text = read_given(path, MAX_FILE_BYTES, through_links=False).decode("utf-8-sig", "replace")
    except OSError:
        return found
    if path.suffix in {".csv", ".tsv"}:
        lines = text.splitlines()
        delimiter = max(",\t;", key=lines[0].count) if lines else ","
        for row in csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True):
            for key, value in row.items():
                if isinstance(value, str) and value.strip():
                    number = number_in(value)
                    found.setdefault(key, []).append(math.nan if number is None else number)
        return found
    for document in text.splitlines() if path.suffix == ".jsonl" else [text]:
        with suppress(ValueError, RecursionError):
            for key, number in _flat(json.loads(document)):
                found.setdefault(key, []).append(number)
    return found


def _flat(document: object, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _flat(value, f"{key}.{name}" if key else name)
    elif isinstance(document, int | float) and not isinstance(document, bool):
        with suppress(OverflowError):
            yield key, float(document)


def told_in_files(out: Path) -> Iterator[str]:
    """Yield a line for the last number of each key in the files that a run left."""
    paths = (
        path
        for path in sorted(out.rglob("*"))
        if path.suffix in _TOLD and not path.name.startswith("autoresearch-")
    )
    for path in islice(paths, _MOST_FILES):
        name = path.relative_to(out).as_posix()
        for key, numbers in islice(numbers_in(path).items(), _MOST_KEYS):
            yield FILE_MARK + json.dumps([name, key, numbers[-1]])


_TOLD = {".json", ".jsonl", ".csv", ".tsv"}
