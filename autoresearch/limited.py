"""Run work on untrusted data in a process that ends in time, whatever a library does there.

SQLite, for one, cannot be interrupted within a call of a function. The process gets no secret of
the environment.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from autoresearch import errors
from autoresearch.code import module_command, package_root
from autoresearch.errors import AutoresearchError, MachineryError

_PASSED = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "LC_ALL")
_GRACE_S = 600.0
"""Seconds that the process may take before and after the work that it limits itself."""


class OutOfTimeError(Exception):
    """The process did not end in time."""


def run(module: str, request: dict[str, Any], data: bytes = b"", *, limit_s: float) -> Any:
    """Return what a module answers to a request; see :func:`answer`.

    :param limit_s: seconds that the module's work may take.
    :raises OutOfTimeError: if it takes longer.
    :raises AutoresearchError: the one that the module raised.
    :raises MachineryError: if the process gives no answer.
    """
    environ = {name: os.environ[name] for name in _PASSED if name in os.environ}
    asked = json.dumps(request | {"limit_s": limit_s}).encode() + b"\n" + data
    try:
        ended = subprocess.run(
            module_command(module),
            env=environ | {"PYTHONUTF8": "1"},
            cwd=package_root(),
            input=asked,
            capture_output=True,
            check=False,
            timeout=limit_s + _GRACE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise OutOfTimeError from error
    if ended.returncode == -signal.SIGALRM:
        raise OutOfTimeError
    try:
        said = json.loads(ended.stdout)
    except ValueError as error:
        last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no answer"]
        raise MachineryError(
            f"the process that reads it ended with {ended.returncode} ({last[0][:200]}); free some "
            "memory, or give a smaller file"
        ) from error
    if "error" in said:
        kind = getattr(errors, said["error"])
        raise kind(said["message"])
    return said["answer"]


def answer(work: Callable[[dict[str, Any], bytes], Any]) -> None:
    """Answer the request on standard input with what ``work`` returns for it and the data."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        said = {"answer": work(request, sys.stdin.buffer.read())}
    except AutoresearchError as error:
        said = {"error": type(error).__name__, "message": str(error)}
    json.dump(said, sys.stdout)


def begin_limits(limit_s: float, *, file_bytes: int, more_memory_bytes: int) -> None:
    """End this process after so many seconds, even within a call, and limit its files and how much
    more memory it may take."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115 (Linux only)
    most = pages * resource.getpagesize() + more_memory_bytes
    for kind, limit in ((resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_AS, most)):
        hard = resource.getrlimit(kind)[1]
        kept = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (kept, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
