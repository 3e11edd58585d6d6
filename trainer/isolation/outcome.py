"""What a trial that has ended amounts to: its own result, a failure, or no evidence at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import LOG_FILE
from autoresearch.values import explain
from trainer.isolation.contradiction import contradiction
from trainer.isolation.forkserver_client import signal_name
from trainer.isolation.messages import Driver, Ended
from trainer.isolation.trial_files import ERROR_EXIT_CODE, NO_SPACE_EXIT_CODE, TrialFiles
from trainer.machine.cuda_codes import CRASHED
from trainer.spec import FailureStatus, Measured, TrialFailed, TrialSpec, parse_result

_GIB = 1 << 30


class TrialAborted(AutoresearchError):
    """Someone cancelled the trial. Its processes are dead, and there is no result."""


def aborted(trial_id: str) -> TrialAborted:
    """The error that a cancelled trial ends in."""
    return TrialAborted(f"trial {trial_id} was stopped and has no result")


@dataclass(frozen=True, slots=True)
class Stopped:
    """Why the supervisor ended a trial. ``why`` is a sentence for a person and the proposer."""

    cause: Literal["timeout", "oom", "killed", "aborted"]
    why: str


@dataclass(frozen=True, slots=True)
class Ending:
    """All that the supervisor knows about a trial's end besides the files it left."""

    ended: Ended
    stopped: Stopped | None
    peak_bytes: int
    """The most resident memory of the trial's processes that was seen."""
    oom_killer_struck: bool
    """The kernel's out-of-memory killer ended some process of this machine meanwhile."""
    driver: Driver | None = None
    """What the trial's process said last of its GPU's driver."""


def judge(spec: TrialSpec, files: TrialFiles, ending: Ending) -> Measured | TrialFailed:
    """The result of a trial that ended so; on return it is also in the trial's result.json.

    A sound result.json counts whatever happened after it was written.

    :raises TrialAborted: where it was aborted before it had a result.
    :raises AutoresearchError: where the end says nothing about the config: the error the trial's
        process reported, or a MachineryError.
    """
    _raise_if_machinery(spec, files, ending)
    _raise_if_driver_broke(spec, ending)
    data = files.read_result()
    garbage = ""
    if data is not None:
        try:
            result = parse_result(data)
        except ValidationError as error:
            garbage = explain(error)
        else:
            garbage = files.tampering() or contradiction(spec, result)
            if not garbage:
                return result
    status, message = _failure(spec, files, ending, garbage)
    logged = files.curve.last
    failed = TrialFailed(
        status=status,
        message=message[:2000],
        steps=logged.step if logged is not None and spec.log_every == 1 else None,
        peak_mem_gib=max(ending.peak_bytes, ending.ended.peak_bytes) / _GIB or None,
    )
    files.write_result(failed)
    return failed


def _raise_if_machinery(spec: TrialSpec, files: TrialFiles, ending: Ending) -> None:
    if ending.ended.survivors:
        raise MachineryError(
            f"processes {list(ending.ended.survivors)} of trial {spec.trial_id} cannot be killed;"
            " look for a stuck device or file system before running more"
        )
    if ending.stopped is not None:
        return
    if ending.ended.exit_code in {NO_SPACE_EXIT_CODE, ERROR_EXIT_CODE}:
        files.discard_result()  # what measured nothing has none, when the campaign is resumed too
    if ending.ended.exit_code == NO_SPACE_EXIT_CODE:
        raise MachineryError(
            f"the disk under {files.path} is full; free some space and resume the campaign"
        )
    if ending.ended.exit_code == ERROR_EXIT_CODE:
        raise files.read_error() or MachineryError(
            f"trial {spec.trial_id} could not be run ({files.log.last_line() or 'it did not say'});"
            f" see {files.path / LOG_FILE}"
        )


def _raise_if_driver_broke(spec: TrialSpec, ending: Ending) -> None:
    """Whatever ends a trial while its GPU's driver starts, the config had no part in it."""
    if ending.driver is None or ending.driver.phase != "starting":
        return
    stopped, ended = ending.stopped, ending.ended
    if stopped is not None and stopped.cause == "aborted":
        return
    if stopped is not None:
        how = stopped.why
    elif ended.signal is not None:
        how = f"killed by {signal_name(ended.signal)}"
    else:
        how = f"exit code {ended.exit_code}"
    raise MachineryError(f"CUDA did not start on {spec.device} ({how}): {CRASHED}")


def _failure(
    spec: TrialSpec, files: TrialFiles, ending: Ending, garbage: str
) -> tuple[FailureStatus, str]:
    if ending.stopped is not None:
        if ending.stopped.cause == "aborted":
            raise aborted(spec.trial_id)
        why = ending.stopped.why
        # What a script said last tells a person more than a limit of ours does.
        said = files.log.last_line() if spec.command is not None else ""
        return ending.stopped.cause, _with(why, said)
    last = files.log.last_line()
    number = ending.ended.signal
    if number is not None:
        if signal_name(number) == "SIGKILL" and ending.oom_killer_struck:
            return "oom", "killed by the kernel's out-of-memory killer"
        hint = ", perhaps by the out-of-memory killer" if signal_name(number) == "SIGKILL" else ""
        return "killed", _with(f"killed by {signal_name(number)}{hint}", last)
    if ending.ended.exit_code:
        return "crash", _with(f"exit code {ending.ended.exit_code}", last)
    if garbage:
        return "crash", f"garbage result: {garbage}"
    return "crash", _with("ended without a result", last)


def _with(message: str, last_line: str) -> str:
    return f"{message}: {last_line}" if last_line else message
