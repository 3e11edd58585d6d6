"""Run a command in a trial's process: start it, read it, and report a result.

The command runs in a process that is confined before it begins, and this one is confined as soon as
that is started. Like the built-in trainer's it writes curve.jsonl in the trial's directory. The
command's own working directory is among the trial's temporary files
(:mod:`trainer.command.workspace`) and is removed with them.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from autoresearch.errors import MachineryError, SpecError
from autoresearch.files import write_all
from autoresearch.layout import CURVE_FILE, log_path
from trainer.command.filling import Filled, filled, place_script
from trainer.command.out_of_memory import shortage
from trainer.command.output import Printed, scores_in, taken, told_in_files
from trainer.command.raised import OwnFiles
from trainer.command.reason import Reason
from trainer.command.starting import Call, Started
from trainer.command.workspace import work_dir
from trainer.machine.environment import as_it_is
from trainer.schema import (
    MAX_MESSAGE_CHARACTERS,
    Command,
    CommandOk,
    CurvePoint,
    FailureStatus,
    Measured,
    Pruner,
    TrialFailed,
    TrialSpec,
)

_POLL_S = 0.05
"""Seconds between checks whether a silent command has ended."""
_CHUNK_BYTES = 1 << 16
_ANY_NUMBER = "([-+0-9.eE]+)"
_DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "WANDB_MODE": "disabled",  # W&B fails without a key
    # `uv run` takes the environment that the project has, which a trial cannot change.
    "UV_OFFLINE": "1",
    "UV_NO_SYNC": "1",
    "UV_PYTHON_DOWNLOADS": "never",
}
_LEFT_CHUNKS = 64
"""Most chunks to read after its end: 4 MiB, more than a pipe holds."""


Start = Callable[[Call, int], Started]
"""Starts a command whose output goes to a descriptor."""


def run_command(
    spec: TrialSpec, trial_dir: Path, *, born: float, start: Start, work: str | None = None
) -> Measured | TrialFailed:
    """Run the trial and return its result.

    :param start: starts the command, confined.
    :param work: working directory of a check, which runs after the training; None: of the trial.

    :raises AutoresearchError: if the command cannot be started or asks for an unknown value; then
        there is no result.
    """
    if spec.command is None:
        raise SpecError("a trial of the built-in trainer was sent to the one for commands")
    place = None if work is None else Path(work)
    run = _Run(spec, spec.command, trial_dir, born, start, place)
    try:
        return run.result()
    except OSError as error:
        # its own files may fill a disk; otherwise the supervisor reports the error
        if run.has_begun:
            return run.failed("crash", f"its files or output cannot be read or kept ({error})")
        raise MachineryError(
            f"the trial's directory {trial_dir} cannot be written ({error.strerror}); free some "
            "space there or choose another directory"
        ) from error


class _Run:
    """One command, from its start to its end."""

    def __init__(
        self,
        spec: TrialSpec,
        command: Command,
        trial_dir: Path,
        born: float,
        start: Start,
        work: Path | None,
    ) -> None:
        self._spec = spec
        self._command = command
        self._trial_dir = trial_dir
        self._born = born
        self._start = start
        self._out = work_dir(trial_dir, command)
        self._work = work or self._out
        self._printed = Printed(command)
        self._pruner = Pruner(spec.prune)
        self._last_step: int | None = None
        self._lost: int | None = None
        """First step with a loss that was not finite."""
        self.has_begun = work is not None
        """Whether a command has started: later failures in its files may be its own."""

    def result(self) -> Measured | TrialFailed:
        """Run the command and return the result."""
        threads = self._spec.threads or len(os.sched_getaffinity(0))
        filling = filled(self._spec, self._command, self._out, threads, self._work)
        if filling.values is not None:
            (self._work / filling.values[0]).write_text(filling.values[1], "utf-8")
        if not self.has_begun:  # a check runs where the training wrote
            place_script(self._command, filling, self._work)
        setup_s = max(0.0, time.monotonic() - self._born)
        began = time.monotonic()
        code, peak_bytes = self._attended(filling, began)
        train_s = time.monotonic() - began
        if self._pruner.why:
            return self.failed("pruned", self._pruner.why)
        if code != 0 and self._printed.out_of_memory:
            line = self._printed.out_of_memory
            why = f"{shortage(line, self._spec.device)}: {line}"
            return self.failed("oom", why, lines=True)
        if code != 0:
            how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
            hint = ", perhaps by the out-of-memory killer" if code == -9 else ""
            return self.failed("crash" if code > 0 else "killed", f"{how}{hint}", lines=True)
        if self._command.is_tried:
            write_all(1, "".join(f"{one}\n" for one in told_in_files(self._work)).encode())
        # A check's score takes the place of this 0.
        is_scored = self._command.check is None and not self._command.is_tried
        score = self._score() if is_scored else 0.0
        if isinstance(score, TrialFailed):
            return score
        return CommandOk(
            score=score,
            direction=self._command.measure.direction,
            steps=self._last_step,
            train_s=train_s,
            setup_s=setup_s,
            peak_mem_gib=peak_bytes / 2**30,
        )

    # --- while it runs --------------------------------------------------------------------------

    def _attended(self, filling: Filled, began: float) -> tuple[int, int]:
        """Read all output until the command has ended; return its exit code and peak bytes."""
        ours, theirs = os.pipe()
        started = self._start(self._call(filling), theirs)
        self.has_begun = True
        os.close(theirs)
        try:
            with (self._trial_dir / CURVE_FILE).open("a", encoding="utf-8") as curve:
                for data in _until_end(ours, started):
                    write_all(1, data)  # standard output is trainer.log
                    for point in self._printed.feed(data):
                        self._take(point, curve, began)
                    if self._pruner.why:
                        break
                for point in self._printed.rest():
                    self._take(point, curve, began)
        finally:
            os.close(ours)
            if started.ended() is None:
                started.end()
        return started.ended() or 0, started.peak_bytes

    def _call(self, filling: Filled) -> Call:
        command = self._command
        env = as_it_is() | _DEFAULTS | filling.env
        if self._spec.threads is not None:
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
                env.setdefault(name, str(self._spec.threads))
        if command.main is None:
            return Call(filling.argv, env, self._work)
        script = self._work / filling.argv[1]
        if command.edited is None:  # like a program's, a script's folder is its real location
            script = script.resolve()
        return Call(filling.argv, env, self._work, command.main, script)

    def _take(self, found: tuple[int, float], curve: TextIO, began: float) -> None:
        step, loss = found
        if loss - loss != 0:
            self._lost = step if self._lost is None else self._lost
            return
        self._last_step = step
        self._pruner.take(step, loss)
        point = CurvePoint(step=step, loss=loss, elapsed_s=time.monotonic() - began)
        curve.write(point.model_dump_json() + "\n")
        curve.flush()

    # --- after it -------------------------------------------------------------------------------

    def failed(self, status: FailureStatus, why: str, *, lines: bool = False) -> TrialFailed:
        """Return the result of a failed trial; ``lines``: with what its output says of it."""
        if lines:
            own = OwnFiles(self._work, self._out, Path(self._command.directory))
            reason = Reason.of(self._printed.ends.lines(), own)
            log = log_path(self._spec.trial_id)
            why = reason.sentence(why, log, is_crash=status in {"crash", "killed"})
        return TrialFailed(
            status=status, message=why[:MAX_MESSAGE_CHARACTERS], steps=self._last_step
        )

    def _score(self) -> float | TrialFailed:
        """Return the score, or the failure of a command without one."""
        if self._printed.cut:
            why = f"the score's pattern reads only a part of {self._printed.cut}; "
            by_comma = "print it without commas" if "," in self._printed.cut else ""
            why += by_comma or f"write {_ANY_NUMBER}"
            return self.failed("no_score", why)
        rule, measure = self._command.score, self._command.measure
        found = self._printed.scores if rule.pattern else scores_in(self._work, rule)
        score = taken(found, rule.take)
        if score is not None and measure.admits(score):
            return score
        if score is not None:
            return self.failed("nonfinite", f"the score was {score} {measure.unit}", lines=True)
        if self._lost is not None:
            return self.failed("nonfinite", f"the loss was lost at step {self._lost}", lines=True)
        where = f"{rule.file} has no {rule.key}"
        if rule.pattern is not None:
            where = f"no line has {rule.pattern!r}"
        return self.failed("no_score", f"it ended without a score: {where}", lines=True)


def _until_end(descriptor: int, started: Started) -> Iterator[bytes]:
    """Yield output until the command has ended. A process that it left behind may write on, and is
    not awaited."""
    left = _LEFT_CHUNKS
    while left:
        ended = started.ended() is not None  # asked first: its last output is available then
        ready, _, _ = select.select([descriptor], [], [], 0 if ended else _POLL_S)
        data = os.read(descriptor, _CHUNK_BYTES) if ready else b""
        if data:
            left -= ended
            yield data
        elif ended:
            return
        elif ready:  # it has closed its output, and is about to end or continues silently
            time.sleep(_POLL_S / 10)
