"""Decide the outcome of a trial that has ended: its own result, a failure, or no evidence at
all."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationError

from autoresearch import errors
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import RESULT_FILE, SPEC_FILE, log_path
from autoresearch.values import Frozen, PlainText, explain
from trainer.isolation.forkserver_client import signal_name
from trainer.isolation.messages import Driver, Ended, Said
from trainer.isolation.trial_files import TrialFiles, read_small, sealed_path, sealed_result_path
from trainer.machine.cuda_driver import CRASHED
from trainer.schema import (
    MAX_MESSAGE_CHARACTERS,
    CommandOk,
    FailureStatus,
    Measured,
    ScoredText,
    TextScore,
    TrialFailed,
    TrialOk,
    TrialSpec,
    parse_result,
)

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


@dataclass(slots=True)
class Ending:
    """All that the supervisor learns about a trial's end."""

    ended: Ended = field(default_factory=Ended)
    stopped: Stopped | None = None
    peak_bytes: int = 0
    """Most resident memory of the trial's processes that was seen."""
    oom_killer_struck: bool = False
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
    ended = ending.ended
    if ended.survivors:
        raise MachineryError(
            f"processes {list(ended.survivors)} of trial {spec.trial_id} cannot be killed;"
            " check for a stuck device or file system before running more"
        )
    result, garbage = _reported(spec, files, ending)
    if result is None:
        if ending.stopped is not None and ending.stopped.cause == "aborted":
            raise aborted(spec.trial_id)
        _raise_if_driver_failed(spec, files, ending)
        status, message = _failure(spec, files, ending, garbage)
        logged = files.curve.last
        result = TrialFailed(
            status=status,
            message=message[:2000],
            steps=logged.step if logged is not None and spec.log_every == 1 else None,
            peak_mem_gib=max(ending.peak_bytes, ended.peak_bytes) / _GIB or None,
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


def _raise_if_driver_failed(spec: TrialSpec, files: TrialFiles, ending: Ending) -> None:
    """Raise if the trial ended while its GPU driver started, or a signal killed it before its first
    step, which does not depend on the config. SIGKILL is excluded: it may come from the
    out-of-memory killer."""
    if ending.driver is None:
        return
    number = ending.ended.signal
    how = _how(ending.ended) if ending.stopped is None else ending.stopped.why
    if ending.driver.phase == "starting":
        raise MachineryError(f"CUDA did not start on {spec.device} ({how}): {CRASHED}")
    by_signal = number not in {None, signal.SIGKILL} and ending.stopped is None
    if by_signal and files.curve.last is None:
        raise MachineryError(
            f"the trial was {how} on {spec.device} before its first"
            f" training step; see trainer.log in {files.path}, and run `autoresearch doctor`"
        )


def _failure(
    spec: TrialSpec, files: TrialFiles, ending: Ending, garbage: str
) -> tuple[FailureStatus, str]:
    status: FailureStatus
    ended, last = ending.ended, files.log.last_line()
    if ending.stopped is not None:
        assert ending.stopped.cause != "aborted", "it has no result"
        status, why = ending.stopped.cause, ending.stopped.why
        # A script's last line is more informative for a person than our limit.
        last = last if spec.trainer.is_watched else ""
    elif ended.signal == signal.SIGKILL:
        if ending.oom_killer_struck:
            return "oom", "out of host memory: killed by the kernel's out-of-memory killer"
        status, why = "killed", f"{_how(ended)}, perhaps by the out-of-memory killer"
    elif ended.exit_code != 0:
        status, why = "crash" if ended.signal is None else "killed", _how(ended)
    elif garbage:
        return "crash", f"garbage result: {garbage}"
    else:
        status, why = "crash", "ended without a result"
    why = f"{why}: {last}" if last else why
    log = log_path(spec.trial_id) if spec.trainer.is_watched else ""
    return status, f"{why}; whole output: {log}" if log else why


def _how(ended: Ended) -> str:
    if ended.signal is not None:
        return f"killed by {signal_name(ended.signal)}"
    return f"exit code {ended.exit_code}"


def finished_trial(trial_dir: Path) -> tuple[TrialSpec, Measured | TrialFailed] | None:
    """Return the spec and result of a trial that ended earlier; None if they are invalid, or not of
    its sealed spec."""
    order, data = read_small(sealed_path(trial_dir)), read_small(sealed_result_path(trial_dir))
    own = read_small(trial_dir / SPEC_FILE), read_small(trial_dir / RESULT_FILE)
    if order is None or data is None or own != (order, data):
        return None
    try:
        spec = TrialSpec.model_validate_json(order)
        result = parse_result(data)
    except ValidationError:
        return None
    return None if contradiction(spec, result) else (spec, result)


def contradiction(spec: TrialSpec, result: Measured | TrialFailed) -> str:
    """Return why this cannot be the result of that spec; empty if it can."""
    if isinstance(result, TrialFailed):
        return ""
    if spec.command is not None and isinstance(result, CommandOk):
        direction = spec.command.measure.direction
        return "" if result.direction == direction else f"to {result.direction}, not {direction}"
    if spec.command is not None or not isinstance(result, TrialOk):
        return "scored by another trainer than was asked for"
    compared: tuple[tuple[str, object, object], ...] = (
        ("precision", result.precision, spec.gpt.precision),
        ("backend", result.backend, spec.backend),
        ("steps", result.steps, result.steps if spec.steps is None else spec.steps),
        ("tokens", result.tokens, result.steps * spec.gpt.tokens_per_step),
        ("evaluations", len(result.checkpoints_bpb), len(spec.checkpoints)),
        ("texts", [score.sha256 for score in result.texts], [text.sha256 for text in spec.texts]),
    )
    for name, got, wanted in compared:
        if got != wanted:
            return f"{got} {name}, not the {wanted}"
    pairs = zip(spec.texts, result.texts, strict=True)
    other = next((text.name for text, score in pairs if not _is_of(text, score)), None)
    return "" if other is None else f"the score of {other} is not that of its parts together"


def _is_of(text: ScoredText, score: TextScore) -> bool:
    """Return whether this can be the score of that text: of all its bytes, tokens and parts."""
    whole = text.bytes, text.tokens - len(text.parts), len(text.parts)
    if (score.val_bytes, score.val_tokens, len(score.parts_bpb)) != whole:
        return False
    bits = (bpb * part.bytes for bpb, part in zip(score.parts_bpb, text.parts, strict=True))
    return math.isclose(math.fsum(bits) / text.bytes, score.val_bpb, rel_tol=1e-9)


class TrialError(Frozen):
    """An error of :mod:`autoresearch.errors` sent from the trial's process to the supervisor."""

    kind: Literal["SpecError", "CorpusError", "SandboxError", "MachineryError"]
    message: Annotated[
        PlainText,
        BeforeValidator(
            lambda text: text[:MAX_MESSAGE_CHARACTERS] if isinstance(text, str) else text
        ),
    ]

    @classmethod
    def of(cls, error: AutoresearchError) -> TrialError:
        """Return the record of an error."""
        kinds = (errors.SpecError, errors.CorpusError, errors.SandboxError)
        kind = next((k.__name__ for k in kinds if isinstance(error, k)), "MachineryError")
        return cls.model_validate({"kind": kind, "message": str(error)})

    def as_exception(self) -> AutoresearchError:
        """Return the error, to be raised again."""
        exception: AutoresearchError = getattr(errors, self.kind)(self.message)
        return exception
