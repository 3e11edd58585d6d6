"""Keep a campaign alive when a standard stream fails: a full disk or a closed pipe ends no work."""

import codecs
import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from autoresearch.errors import MachineryError
from autoresearch.safe_text import redact

OUTPUT = "standard output"


class Screen:
    """One standard stream. After its first failed write, everything written to it is dropped.

    If standard output cannot be written, writing to it raises MachineryError, unless
    :func:`outlive` was called. A closed pipe is not a failure: its reader has seen enough.
    """

    outlived = False
    """Whether the work continues without the stream."""

    def __init__(self, stream: TextIO | None, name: str) -> None:
        """Wrap ``stream``; None, Python's value for a closed one, drops everything."""
        self.name = name
        self.lost: str | None = None if stream else "it is closed"
        """Reason why nothing more is shown."""
        self.noted = False
        self._failure: MachineryError | None = None
        self._stream = stream or open(os.devnull, "w")  # noqa: PTH123, SIM115 (until the end)

    def write(self, text: str) -> int:
        """Write text without secrets, or drop it once the stream is lost."""
        if self._failure and not Screen.outlived:
            raise self._failure
        with self._guarded():
            self._stream.write(redact(text))
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with self._guarded():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.lost = error.strerror or str(error)
            discard = os.open(os.devnull, os.O_WRONLY)
            os.dup2(discard, self._stream.fileno())  # buffered text goes there too
            os.close(discard)
            if error.errno != errno.EPIPE and self.name == OUTPUT and not Screen.outlived:
                self._failure = MachineryError(
                    f"cannot write to {self.name}: {self.lost}; free some space where it goes, or "
                    "redirect it to another file"
                )
                raise self._failure from error


def protect() -> None:
    """Wrap standard output and standard error."""
    for number in (0, 1, 2):  # or the next file that is opened gets the number of a closed one
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Click writes past a stream that is ASCII, in UTF-8, to the one below it.
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="replace")
    sys.stdout = cast("TextIO", Screen(sys.stdout, OUTPUT))
    sys.stderr = cast("TextIO", Screen(sys.stderr, "standard error"))
    _SCREENS[:] = sys.stdout, sys.stderr


_SCREENS: list[Any] = []


def outlive() -> None:
    """Continue without a stream that cannot be written."""
    Screen.outlived = True


def losses() -> list[str]:
    """Return a sentence for each stream lost since the last call, once the work outlives them."""
    lost = [one for one in _SCREENS if Screen.outlived and one.lost and not one.noted]
    for one in lost:
        one.noted = True
    return [f"{one.name} was lost ({one.lost}); the work continued without it" for one in lost]
