"""Find the exceptions in printed output: Python's tracebacks, and those that rich prints.

The output is untrusted and may be of several processes at once, so lines that fit nowhere are
skipped, and every text is cut.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

SHOWN_CHARACTERS = 240
_MOST_FOREIGN = 20
"""Lines of others to skip between a traceback's frames and its exception."""
_SYNTAX_LINES = 8
"""Most lines of a syntax error that has no header."""
_MORE_LINES = 3
"""Lines of a message to show after its first."""
_HEADER = re.compile(
    r"^(?P<prefix>.*?)(?P<box>╭─+ )?"
    r"(?:Original |\+ Exception Group )?Traceback \(most recent call last\)"
)
_FRAME = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_BOXED_FRAME = re.compile(r"(?P<file>\S.*):(?P<line>\d+)(?: in (?P<function>.+))?$")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*|:)?$")
_NAMED_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Group|Interrupt|Exit|Warning)\b")
_IS_NO_ERROR = re.compile(r"[a-z_\d]+\b(?!\.)|(?:INFO|DEBUG|WARNING|ERROR)\b")
_IGNORED = re.compile(r"Exception ignored |--- Logging error ---|Task exception was never")
_ENDS_MESSAGE = re.compile(
    r'$|"""|The above exception was|During handling of the above|Exception ignored |'
    r"Task exception was never|"
    r"\s*\+[-+]|\s*(?:\[bt\]|frame #\d|Stack trace)|-- Process \d"
)
_WRAPS = re.compile(r"Original Traceback|-- Process \d+ terminated")
_LAUNCHER = re.compile(r"(?:\w+\.)*(?:ChildFailedError|CalledProcessError)\b")
_GROUP_LINE = re.compile(r"^ *\| ?")
_NOT_OWN = re.compile(r"(?:^|/)(?:\.|lib\d*/python\d|site-packages/|dist-packages/)")


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception that was printed with its traceback."""

    error: str
    """Its last line, as ``ValueError: late``, and the next few of its message."""
    where: str = ""
    """The deepest frame in the user's own files, as ``train.py:7 in main``; empty if none is."""
    deepest: str = ""
    """File, function and code of the deepest frames."""
    is_ignored: bool = False
    """Whether Python only reported it, as one in a destructor, or it is not its group's first."""
    is_in_group: bool = False
    is_among_others: bool = False
    """Whether its lines may stand between those of other processes."""
    begins_at: int = 0
    """Index of its first line."""
    wraps_next: bool = False
    """Whether its message is the next exception, that of another process."""
    ends_at: int = 0
    """Index of the first line after it."""

    @property
    def is_launcher(self) -> bool:
        """Whether it only says that another process failed."""
        return _LAUNCHER.match(self.error) is not None


class OwnFiles:
    """The user's own files: those in the script's folder and in its working copy."""

    def __init__(self, *folders: Path) -> None:
        named = chain.from_iterable((str(one), os.path.realpath(one)) for one in folders)
        self._roots = tuple(dict.fromkeys(named))

    def name(self, file: str) -> str:
        """Return a file's name relative to its folder; empty if it is not the user's own."""
        for root in self._roots:
            path = os.path.normpath(os.path.join(root, file))  # noqa: PTH118 (untrusted)
            inside = path.removeprefix(root + "/")
            is_there = os.path.isabs(file) or os.path.lexists(path)  # noqa: PTH117
            if inside != path and is_there and not _NOT_OWN.search(inside):
                return inside
        return ""


def exceptions(lines: Sequence[str], own: OwnFiles) -> list[Raised]:
    """Return the exceptions in the order in which they were printed.

    :param lines: without escape sequences.
    """
    found: list[Raised] = []
    at = 0
    while at < len(lines):
        header = _HEADER.match(lines[at])
        frame = None if header else _FRAME.match(lines[at])
        if header is None and (frame is None or frame["function"]):
            at += 1
            continue
        # A syntax error of the script itself has one frame and no header.
        block = _Block(lines, at + (header is not None), header, own)
        raised = block.read()
        at += 1
        if raised is not None:
            before = lines[max(0, at - 4) : at - 1]
            is_later = raised.is_in_group and bool(found) and found[-1].is_in_group
            is_ignored = is_later or any(map(_IGNORED.match, before))
            found.append(replace(raised, begins_at=at - 1, is_ignored=is_ignored))
            at = at if raised.is_among_others else max(at, raised.ends_at)
    return found


class _Block:
    """A traceback from behind its header to its exception."""

    def __init__(
        self, lines: Sequence[str], at: int, header: re.Match[str] | None, own: OwnFiles
    ) -> None:
        self._lines = lines
        self._at = at
        self._own = own
        self._where = ""
        self._frames: list[str] = []
        self._ends_at = len(lines) if header else at + _SYNTAX_LINES
        self._is_boxed = header is not None and header["box"] is not None
        before = "" if header is None else header["prefix"]
        self._leads_group = header is not None and "Exception Group" in header[0]
        self._is_group = self._leads_group or bool(header and _GROUP_LINE.match(before))
        is_of_all = any(one.startswith(f"{before}  ") for one in lines[at : at + _MOST_FOREIGN])
        # The prefix of a process, as "[rank0]: ", whose lines may stand between others'
        self._prefix = before if before.strip() and not self._is_group and is_of_all else ""
        self._patience = 10 * _MOST_FOREIGN if self._prefix else _MOST_FOREIGN
        self._indent = 0 if self._prefix or self._is_group else len(before) - len(before.lstrip())

    def read(self) -> Raised | None:
        """Return the exception; None if there is none."""
        if self._is_boxed:
            self._read_box()
        foreign: list[int] = []
        """Places of lines that may be an exception without a usual name, or others' lines."""
        skipped = 0
        while self._at < min(len(self._lines), self._ends_at) and skipped <= self._patience:
            line = self._line(self._at)
            if line is None or not line.strip():
                skipped += 1
            elif _HEADER.match(line):
                break
            elif len(line) - len(line.lstrip()) > self._indent or line.startswith("  "):
                self._take_frame(line)
            elif not _EXCEPTION.match(line.rstrip()):
                skipped += 1
            elif _NAMED_ERROR.match(line):
                return self._exception(self._at)
            else:
                skipped += 1
                if not _IS_NO_ERROR.match(line):
                    foreign.append(self._at)
            self._at += 1
        return self._exception(foreign[0]) if foreign and self._frames else None

    def _line(self, at: int) -> str | None:
        """Return a line without its process's prefix; None if it is another process's."""
        line = self._lines[at]
        if self._is_group:
            return _GROUP_LINE.sub("", line)
        if self._prefix:
            return line[len(self._prefix) :] if line.startswith(self._prefix) else None
        return line

    def _take_frame(self, line: str) -> None:
        found = _FRAME.match(line)
        if found is None:
            if self._frames:
                self._frames[-1] = f"{self._frames[-1]} {line.strip()}"[:SHOWN_CHARACTERS]
            return
        self._add(found)

    def _add(self, found: re.Match[str]) -> None:
        function = found["function"] or ""
        self._frames.append(f"{found['file']} {function}"[-SHOWN_CHARACTERS:])
        if name := self._own.name(found["file"]):
            called = f" in {function}" if function else ""
            self._where = f"{name}:{found['line']}{called}"[-SHOWN_CHARACTERS:]

    def _read_box(self) -> None:
        """Read the frames of a traceback in a box, whose lines may be broken."""
        text = ""
        while self._at < len(self._lines):
            line = self._lines[self._at].strip().strip("│").strip()
            if line.startswith("╰") or _HEADER.match(line):
                break
            text = f"{text}{line}"[-4 * SHOWN_CHARACTERS :] if line else ""
            if found := _BOXED_FRAME.match(text):
                self._add(found)
                text = ""
            self._at += 1
        self._at += 1

    def _exception(self, at: int) -> Raised:
        """Return the exception whose last line is at ``at``."""
        message = [(self._line(at) or "").strip()[: 2 * SHOWN_CHARACTERS]]
        after = at + 1
        while after < len(self._lines):
            line = self._line(after) or ""
            is_blank = not line.strip() and len(message) == 1 and message[0].endswith(":")
            if not is_blank and (_ENDS_MESSAGE.match(line) or _HEADER.match(line)):
                break
            if len(message) <= _MORE_LINES:
                message.append(line.strip()[:SHOWN_CHARACTERS])
            elif not line.startswith((" ", "\t")):
                break
            after += 1
        wraps = any(map(_WRAPS.match, self._lines[after : after + 3]))
        return Raised(
            error=_joined(message),
            where=self._where,
            deepest=" ".join(self._frames[-2:]),
            wraps_next=wraps,
            is_among_others=bool(self._prefix),
            is_in_group=self._is_group and not self._leads_group,
            ends_at=after,
        )


def _joined(message: Sequence[str]) -> str:
    """Return a message's lines as one; the first may be the exception's name alone."""
    first, *more = filter(None, message)
    return f"{first}{' ' if first.endswith(':') else ' | '}{' | '.join(more)}" if more else first


def shown(found: Sequence[Raised]) -> Iterator[Raised]:
    """Yield the exception that tells most about a failure, and the one before it, if any."""
    kept = [one for one in found if not one.is_ignored and not one.wraps_next] or list(found)
    causes = [one for one in kept if not one.is_launcher] or kept
    best = next((one for one in reversed(causes) if one.where), causes[-1] if causes else None)
    if best is None:
        return
    earlier = kept[: kept.index(best)]
    # Another process's exception is printed again where it is awaited.
    same = next((one for one in reversed(earlier) if one.error == best.error and one.where), best)
    launched = (one.where for one in reversed(kept) if one.is_launcher)
    where = same.where or next(launched, "")
    yield replace(best, where=where, deepest=same.deepest)
    yield from [one for one in reversed(earlier) if one.error != best.error][:1]
