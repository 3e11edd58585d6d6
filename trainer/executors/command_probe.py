"""Try what trials of a command do on a GPU before any of them counts: start CUDA's driver.

The probe is a trial of the same command in all but its program, so it is confined in the same way.
The driver is started in the command's process, in its child and in its grandchild: a script that
uses the GPU itself, a script whose workers do, and a program that starts the script.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autoresearch.layout import TRIALS_DIR
from trainer.executors.base import Executor
from trainer.machine.cuda_driver import SUCCESS, explain_code
from trainer.schema import (
    Budget,
    Command,
    CommandConfig,
    Limits,
    ScoreRule,
    TrialFailed,
    TrialSpec,
)

_PROGRAM = """
import ctypes, subprocess, sys
depth = int(sys.argv[1])
try:
    code = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError:
    code = -1
codes = [*sys.argv[2:], str(code)]
if depth:
    words = [sys.executable, *sys.orig_argv[1:4], str(depth - 1), *codes]
    sys.exit(subprocess.run(words).returncode)
print("codes", *codes, flush=True)
print("done 0")
"""
_DEPTH = 2
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class CommandProbe:
    """Result of starting the driver in a command and below it."""

    state: Literal["good", "note", "bad"]
    said: str


def probe_command(executor: Executor, command: Command, device: str) -> CommandProbe:
    """Start CUDA as trials of ``command`` would, in some seconds.

    :param executor: will run these trials, on this machine.
    :raises AutoresearchError: if the probe itself cannot run.
    """
    tried = command.model_copy(
        update={
            "argv": (sys.executable, "-P", "-c", _PROGRAM, str(_DEPTH)),
            "score": ScoreRule(pattern="^done ([0-9])$"),
            "edited": None,
            "edits": (),
            "sent_by": "args",
            "main": None,
            "preload": (),
            "check": None,
            "curve": None,
        }
    )
    with tempfile.TemporaryDirectory(prefix="autoresearch-probe-") as place:
        trial_dir = Path(place).resolve() / "campaign" / TRIALS_DIR / "probe"
        spec = TrialSpec(
            trial_id="probe",
            config=CommandConfig(values={}),
            seed=0,
            corpus_dir="",
            corpus_sha256="",
            budget=Budget(unit="run", amount=1),
            device=device,
            limits=Limits(wall_s=_PATIENCE_S),
            command=tried,
        )
        result = executor.run(spec, trial_dir).result
        log = (trial_dir / "trainer.log").read_text("utf-8", "replace")
    codes = next((line.split()[1:] for line in log.splitlines() if line.startswith("codes ")), [])
    if isinstance(result, TrialFailed) or not codes:
        said = result.message if isinstance(result, TrialFailed) else "it printed no codes"
        return CommandProbe("bad", f"a trial that starts CUDA as this command would failed: {said}")
    return _judged([int(code) for code in codes], command)


def _judged(codes: Sequence[int], command: Command) -> CommandProbe:
    """Return what the codes mean for this command."""
    own, *below = codes
    if own != SUCCESS:
        return CommandProbe("bad", f"CUDA does not start in trials of this command: {_code(own)}")
    failed = next((code for code in below if code != SUCCESS), None)
    if failed is None:
        return CommandProbe("good", "CUDA starts in trials of this command, workers included")
    why = f"not in a process that it starts: {_code(failed)}"
    if os.path.basename(command.argv[0]).startswith("python"):  # noqa: PTH119
        return CommandProbe("note", f"CUDA starts in the command itself, but {why}")
    return CommandProbe(
        "bad",
        f"CUDA starts in the program {command.argv[0]} itself, but {why}; write the command as"
        " `python SCRIPT`, or give trials namespaces of their own",
    )


def _code(code: int) -> str:
    return "libcuda.so.1 does not load" if code < 0 else f"cuInit returned {explain_code(code)}"
