"""Decide the outcome of a trial that has ended: its own result, a failure, or no evidence at
all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.values import explain
from trainer.isolation.contradiction import contradiction
from trainer.isolation.forkserver_client import signal_name
from trainer.isolation.messages import Driver, Ended, Said
from trainer.isolation.trial_files import TrialError, TrialFiles
from trainer.machine.cuda_codes import CRASHED
from trainer.spec import FailureStatus, Measured, TrialFailed, TrialSpec, parse_result

_GIB = 1 << 30


class TrialAborted(AutoresearchError):
    """Someone canceled the trial. Its processes are dead, and there is no result."""


def aborted(trial_id: str) -> TrialAborted:
    """Return the error of a canceled trial."""
    return TrialAborted(f"trial {trial_id} was stopped and has no result")


@dataclass(frozen=True, slots=True)
class Stopped:
    """Reason why the supervisor ended a trial. ``why`` is a sentence for a person and the
    proposer."""

    cause: Literal["timeout", "oom", "killed", "aborted"]
    why: str


@dataclass(frozen=True, slots=True)
class Ending:
    """All that the supervisor knows about a trial's end."""

    ended: Ended
    stopped: Stopped | None
    peak_bytes: int
    """Most resident memory of the trial's processes that was seen."""
    oom_killer_struck: bool
    """Whether the kernel's out-of-memory killer ended some process of this machine meanwhile."""
    driver: Driver | None = None
    """The trial process's last report about its GPU driver."""
    said: Said | None = None
    """The trial process's report: the result, or an error."""


def judge(spec: TrialSpec, files: TrialFiles, ending: Ending) -> Measured | TrialFailed:
    """Return the result of an ended trial, which is also written to its result.json.

    How the trial ended comes first: a reported result counts only if nothing else ended the trial.

    :raises TrialAborted: if it was aborted before it had a result.
    :raises AutoresearchError: if the end says nothing about the config: the error that the trial's
        process reported, or a MachineryError.
    """
    if ending.ended.survivors:
        raise MachineryError(
            f"processes {list(ending.ended.survivors)} of trial {spec.trial_id} cannot be killed;"
            " check for a stuck device or file system before running more"
        )
    result, garbage = _reported(spec, files, ending)
    if result is None:
        _raise_if_driver_broke(spec, ending)
        _raise_if_died_early(spec, files, ending)
        status, message = _failure(spec, files, ending, garbage)
        logged = files.curve.last
        result = TrialFailed(
            status=status,
            message=message[:2000],
            steps=logged.step if logged is not None and spec.log_every == 1 else None,
            peak_mem_gib=max(ending.peak_bytes, ending.ended.peak_bytes) / _GIB or None,
        )
    files.write_result(result)
    return result


def _reported(
    spec: TrialSpec, files: TrialFiles, ending: Ending
) -> tuple[Measured | TrialFailed | None, str]:
    """Return the result that the trial's process reported, if it counts, and what is wrong with
    it."""
    said, stopped = ending.said, ending.stopped
    if said is None or (stopped is not None and stopped.cause != "aborted"):
        return None, ""
    try:
        if said.is_error:
            raise TrialError.model_validate_json(said.text).as_exception()
        if stopped is None and ending.ended.exit_code != 0:
            return None, ""
        result = parse_result(said.text)
    except ValidationError as error:
        return None, explain(error)
    garbage = files.tampering() or contradiction(spec, result)
    return (None, garbage) if garbage else (result, "")


def _raise_if_driver_broke(spec: TrialSpec, ending: Ending) -> None:
    """Raise if the trial ended while its GPU driver started: the config had no part in it."""
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


def _raise_if_died_early(spec: TrialSpec, files: TrialFiles, ending: Ending) -> None:
    """Raise if a GPU library crashed before the first step, which does not depend on the config.
    SIGKILL is excluded: it may come from the out-of-memory killer."""
    number = ending.ended.signal
    if ending.driver is None or files.curve.last is not None or ending.stopped is not None:
        return
    if number is not None and signal_name(number) != "SIGKILL":
        raise MachineryError(
            f"the trial was killed by {signal_name(number)} on {spec.device} before its first"
            f" training step; see trainer.log in {files.path}, and run `autoresearch doctor`"
        )


def _failure(
    spec: TrialSpec, files: TrialFiles, ending: Ending, garbage: str
) -> tuple[FailureStatus, str]:
    if ending.stopped is not None:
        if ending.stopped.cause == "aborted":
            raise aborted(spec.trial_id)
        why = ending.stopped.why
        # A script's last line is more informative for a person than our limit.
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
