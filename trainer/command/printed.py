"""What a command prints, read line by line: a curve, scores, and why it may have failed.

Its lines are data. They are cut to a bound before anything looks at them, and the patterns that do
were written for the menu, not by the script; one that takes forever on a hostile line takes the
trial's own time, since this runs in the trial's process.

A pattern such as ``val loss ([0-9.]+)`` says what a sound number looks like, and a run that has
lost its numbers prints ``val loss nan``. So each pattern has a twin, in which the number's group
stands for nan and inf, and what that finds is a score that is not finite.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from autoresearch.plain_text import plain
from trainer.spec import Command, Take

MAX_LINE_BYTES = 1 << 14
"""Of a line, what is looked at."""
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
"""How PyTorch, Python, the C++ runtime and JAX say it."""
_NOT_FINITE = r"(?i:[-+]?(?:nan|inf(?:inity)?))"
_GOES_ON = re.compile(r"\d|[eE][-+]?\d|\.\d")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(?![\d,])")
"""What stands behind a number that is not whole, and one whose thousands are set off."""
_WHOLE = re.compile(r"[-+\w.,]+")
_END = re.compile(rb"[\r\n]")


class Lines:
    """Takes in bytes wherever they are cut; a carriage return ends a line as a new line does."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines completed by ``data``."""
        *lines, unread = _END.split(self._unread + data)
        self._unread = unread[:MAX_LINE_BYTES]
        for line in lines:
            if line:
                yield line[:MAX_LINE_BYTES].decode("utf-8", "replace")

    def rest(self) -> Iterator[str]:
        """What had no end."""
        if self._unread:
            yield self._unread.decode("utf-8", "replace")
        self._unread = b""


class Number:
    """Finds one group of a pattern, as a number, in a line."""

    def __init__(self, pattern: str, group: int = 1) -> None:
        self._found = re.compile(pattern)
        self._lost = _twin(pattern, group)
        self._group = group
        self.cut = ""
        """The first number that the pattern read a part of."""

    def search(self, line: str) -> tuple[re.Match[str], float] | None:
        """The first match and its number, which may be nan or infinite; or None."""
        match = self._found.search(line)
        if match is not None:
            number = number_in(match.group(self._group))
            if number is not None:
                self._note_cut(line, match)
                return match, number
        if self._lost is not None and (match := self._lost.search(line)) is not None:
            number = number_in(match.group(self._group))
            if number is not None:
                return match, number
        return None

    def _note_cut(self, line: str, match: re.Match[str]) -> None:
        begin, end = match.span(self._group)
        if not self.cut and (
            _GOES_ON.match(line, end)
            or (line.startswith(",", end) and _THOUSANDS.match(line, begin))
        ):
            whole = _WHOLE.match(line, begin)
            self.cut = whole[0].rstrip(".,") if whole else ""


class Printed:
    """All that was printed, as far as anybody will ask."""

    def __init__(self, command: Command) -> None:
        score, curve = command.score, command.curve
        self._score = None if score.pattern is None else Number(score.pattern)
        self._curve: Number | None = None
        self._step = 1
        if curve is not None:
            named = re.compile(curve.pattern).groupindex
            loss = named.get("loss", 3 - named["step"] if "step" in named else 2)
            self._step = 3 - loss
            self._curve = Number(curve.pattern, loss)
        self._oom = re.compile("|".join(f"(?:{each})" for each in (*OUT_OF_MEMORY, *command.oom)))
        self.last: deque[str] = deque(maxlen=SHOWN_LINES)
        """The last of them that are not blank."""
        self.scores: list[float] = []
        """In order; those that are not finite among them. A flood keeps its ends."""
        self.out_of_memory = ""
        """The line that says so."""

    def take(self, line: str) -> tuple[int, float] | None:
        """Take in a line; the point of the curve that it is, if it is one."""
        if line.strip(" ^~"):  # nor what only underlines the line before, in a traceback
            self.last.append(line[:SHOWN_CHARACTERS])
        if not self.out_of_memory and self._oom.search(line):
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
        """A score that its pattern read only a part of; empty where it read all whole."""
        return "" if self._score is None else self._score.cut[:SHOWN_CHARACTERS]

    @property
    def last_lines(self) -> str:
        """Those on one line, made plain."""
        return " | ".join(plain(line).strip() for line in self.last)


_MOST_SCORES = 100_000


def number_in(text: str | None) -> float | None:
    """The number that a text is, a full stop at its end aside."""
    try:
        return float((text or "").strip().rstrip(".,;"))
    except ValueError:
        return None


def taken(scores: list[float], take: Take) -> float | None:
    """The score that a rule means: None where there is none, nan where any that it would be chosen
    from is not finite."""
    if not scores:
        return None
    if take in {"lowest", "highest"}:
        # Nan compares as neither; a run that lost its numbers has no best.
        lost = [score for score in scores if score - score != 0]
        chosen = min(scores) if take == "lowest" else max(scores)
        return lost[0] if lost else chosen
    return scores[0] if take == "first" else scores[-1]


def _twin(pattern: str, group: int) -> re.Pattern[str] | None:
    """The pattern with what its ``group``-th group holds replaced by the words for no number."""
    span = _group_span(pattern, group)
    if span is None:
        return None
    try:
        twin = re.compile(pattern[: span[0]] + _NOT_FINITE + pattern[span[1] :])
    except re.error:
        return None
    return twin if twin.groups >= group else None


def _group_span(pattern: str, group: int) -> tuple[int, int] | None:
    """Where the inside of the ``group``-th capturing group begins and ends."""
    opened: list[tuple[int, int]] = []
    """The number of each open group, 0 for one that captures nothing, and where it begins."""
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
