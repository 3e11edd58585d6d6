"""Say why a command failed, by what it printed.

The reason is the last exception with the deepest frame in the user's own files, else the first
error of the last lines, else these lines. The stack of a C++ library and what is printed while
Python exits are not the reason. All of it is untrusted text, bounded and made plain.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from autoresearch.safe_text import plain
from trainer.command.hints import Hint, hint
from trainer.command.raised import SHOWN_CHARACTERS, OwnFiles, Raised, exceptions, shown

_HEAD_BYTES = 1 << 15
_TAIL_BYTES = 1 << 18
_MAX_LINE_CHARACTERS = 1 << 12
SHOWN_LINES = 5
_NEAR_LINES = 100
"""Lines at the end among which the first error is the reason."""
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
_NOISE = re.compile(
    r"\s*(?:\[bt\]|frame #\d+:|#\d+:? +0x|@ +0x|\d+: +0x|at \S.*\(.*\)$|Stack trace:?$)"
    r"|.*(?:\+0x[0-9a-f]+\)|most recent call (?:first|last))"
    r"|\s*\+-+ \d+ -+$|[\s\-=*~^#╭╮╰╯│─+|]*$"
    r'|  File ".+", line \d+ in '
    r"|Exception ignored |(?:<sys>|sys):1: \w*Warning"
)
"""Lines that never say why: frames of a native stack, rules, and what is printed at exit."""
_CRASH_FRAME = re.compile(r'  File "(?P<file>.+?)", line (?P<line>\d+) in (?P<function>.+)$')
_BOX_OF_ERROR = re.compile(r"╭─ Error ─+╮\n│ ")
"""Two lines that typer prints around an error."""
_NUMBER = r"[\s:=]*(?:[-+]?\.?\d[\d.,]*(?:e[-+]?\d+)?%?(?:\W|$)|nan\b|inf\b)"
_ERROR = re.compile(
    r"\s*(?:[\w./+-]+: |\S+:\d+(?::\d+)?: |\[[^\]]*\] ?){0,4}"
    rf"(?i:fatal(?: error)?|error|panic)(?:\[\w+\])?:(?!{_NUMBER})"
    r"|.*(?:Check failed|\b(?:FATAL|CRITICAL)\b|terminate called|panicked at|Segmentation fault"
    r"|Fatal Python error|command not found|\bERROR\b)"
    rf"|(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b:?(?!{_NUMBER})"
)
"""Lines that are an error, and no metric of that name."""


class Ends:
    """Keeps the first and the last of all output."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = bytearray()
        self._is_cut = False

    def add(self, data: bytes) -> None:
        """Add output."""
        if len(self._head) < _HEAD_BYTES:
            room = _HEAD_BYTES - len(self._head)
            self._head, data = self._head + data[:room], data[room:]
        self._tail += data[-_TAIL_BYTES:]
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]
            self._is_cut = True

    def lines(self) -> list[str]:
        """Return the lines that are kept, without escape sequences and each up to a limit."""
        between = b"\n" if self._is_cut else b""
        text = (self._head + between + bytes(self._tail)).decode("utf-8", "replace")
        text = _ESCAPE.sub("", text).replace("\r", "\n")
        lines = _BOX_OF_ERROR.sub("Error: ", text).split("\n")
        return [line[:_MAX_LINE_CHARACTERS] for line in lines]


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason of a failure, in parts; those that are not known are empty."""

    error: str = ""
    where: str = ""
    """Its place in the user's own files."""
    also: str = ""
    """An earlier exception, or its group, with its place."""
    last: str = ""
    """Last lines: those after the exception, if there is one."""
    hint: Hint | None = None

    @classmethod
    def of(cls, lines: Sequence[str], own: OwnFiles) -> "Reason":
        """Find the reason in a command's output."""
        raised = exceptions(lines, own)
        printed = list(lines)
        for one in raised:
            printed[one.begins_at : one.ends_at] = [""] * (one.ends_at - one.begins_at)
        telling = _telling(printed)
        near = [line for line in telling[-_NEAR_LINES:] if _ERROR.match(line)][:1]
        found = [*shown(raised)]
        after = _telling(printed[found[0].ends_at :]) if found else []
        # A script may report an exception and continue, and fail of something else.
        if not found or (near and len(after) > _NEAR_LINES):
            errors = near or [line for line in telling if _ERROR.match(line)][-1:]
            last = [line for line in telling[-SHOWN_LINES:] if line not in errors]
            return cls(
                error=plain(errors[0][:SHOWN_CHARACTERS]).strip(" │") if errors else "",
                where=_native_place(lines, own),
                also=" | ".join(map(_with_place, found[:1])),
                last=_joined(last),
                hint=hint(" ".join((*errors, *telling[-SHOWN_LINES:]))),
            )
        best, *earlier = found
        return cls(
            error=plain(best.error),
            where=plain(best.where),
            also=" | ".join(map(_with_place, earlier)),
            # A launcher's summary repeats it.
            last="" if any(one.is_launcher for one in raised) else _joined(after),
            hint=hint(" ".join((best.error, best.deepest, *(one.error for one in earlier)))),
        )

    def sentence(self, why: str, log: str = "", *, is_crash: bool = True) -> str:
        """Return a failure in one sentence.

        :param why: how it ended.
        :param log: where the whole output is; empty if it is not kept.
        :param is_crash: whether its error, rather than ``why``, is the reason.
        """
        error, place = self.error, f" ({self.where})" if self.where else ""
        if error and why.endswith(error[:SHOWN_CHARACTERS]):
            parts = [f"{why}{place}"]
        elif error and is_crash:
            parts = [f"{error} ({self.where}; {why})" if self.where else f"{error} ({why})"]
        else:
            parts = [f"{why}: {self.last}" if self.last and not error else why]
            parts += [f"it printed {error}{place}"] if error else []
        parts += [f"also raised: {self.also}"] if self.also else []
        parts += [f"whole output: {log}"] if log else []
        parts += [self.hint.fix] if self.hint else []
        parts += [f"last output: {self.last}"] if self.last and error else []
        return "; ".join(parts)


def _telling(lines: Sequence[str]) -> list[str]:
    """Return the lines that may say why."""
    return [line for line in lines if not _NOISE.match(line)]


def _native_place(lines: Sequence[str], own: OwnFiles) -> str:
    """Return the place in the user's own files where Python itself crashed; empty if unknown."""
    for found in filter(None, map(_CRASH_FRAME.match, lines)):
        if name := own.name(found["file"]):
            return plain(f"{name}:{found['line']} in {found['function']}")[:SHOWN_CHARACTERS]
    return ""


def _joined(lines: Sequence[str]) -> str:
    return " | ".join(plain(line[:SHOWN_CHARACTERS]).strip(" │") for line in lines[-SHOWN_LINES:])


def _with_place(raised: Raised) -> str:
    place = f" ({raised.where})" if raised.where else ""
    return plain(f"{raised.error[:SHOWN_CHARACTERS]}{place}")
