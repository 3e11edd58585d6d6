"""Run the command in this process: as its console script does, without starting a new Python."""

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from agent.cli import main

STARTED = frozenset("loop stress confirm calibrate ladder attribute envelope doctor".split())
"""Commands that start trials or probes, and so get a process of their own."""


def run_here(
    words: tuple[str, ...], cwd: Path, environment: dict[str, str]
) -> CompletedProcess[str]:
    """Return the exit code and the output of the command with these words."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", ["autoresearch", *words]),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return CompletedProcess(words, code, output.getvalue(), errors.getvalue())
