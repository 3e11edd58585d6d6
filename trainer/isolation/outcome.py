"""Decide the outcome of a trial that has ended: its own result, a failure, or no evidence at
all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ValidationError

from autoresearch import errors
from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import RESULT_FILE, SPEC_FILE
from autoresearch.values import Frozen, PlainText, explain
from trainer.isolation.forkserver_client import signal_name
from trainer.isolation.messages import Driver, Ended, Said
from trainer.isolation.trial_files import TrialFiles, read_small, sealed_path, sealed_result_path
from trainer.machine.cuda_driver import CRASHED
from trainer.spec import (
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


def finished_trial(trial_dir: Path) -> tuple[TrialSpec, Measured | TrialFailed] | None:
    """Return the spec and result of a trial that ended earlier; None if they are invalid, or not of
    its sealed spec."""
    order, data = read_small(sealed_path(trial_dir)), read_small(sealed_result_path(trial_dir))
    if order is None or order != read_small(trial_dir / SPEC_FILE):
        return None
    if data is None or data != read_small(trial_dir / RESULT_FILE):
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
    if isinstance(result, TrialOk) and spec.command is None:
        return _of_another_run(spec, result)
    if spec.command is None or not isinstance(result, CommandOk):
        return "scored by another trainer than was asked for"
    wanted = spec.command.measure.direction
    return "" if result.direction == wanted else f"to {result.direction}, not to {wanted}"


def _of_another_run(spec: TrialSpec, result: TrialOk) -> str:
    config, steps = spec.gpt, spec.steps
    if result.precision != config.precision:
        return f"trained in {result.precision}, not {config.precision}"
    if result.backend != spec.backend:
        return f"trained by the {result.backend} backend, not {spec.backend}"
    if steps is not None and result.steps != steps:
        return f"{result.steps} steps, not the {steps} of the budget"
    if result.tokens != result.steps * config.tokens_per_step:
        return f"{result.tokens} tokens in {result.steps} steps of {config.tokens_per_step}"
    scored, asked = len(result.checkpoints_bpb), len(spec.checkpoints)
    if scored != asked:
        return f"{scored} evaluations, not the {asked} it was asked for"
    return _of_other_texts(spec.texts, result.texts)


def _of_other_texts(asked: Sequence[ScoredText], scored: Sequence[TextScore]) -> str:
    if [text.sha256 for text in asked] != [score.sha256 for score in scored]:
        return f"scored {len(scored)} texts, not the {len(asked)} it was asked to"
    for text, score in zip(asked, scored, strict=True):
        targets = text.tokens - len(text.parts)
        if (score.val_bytes, score.val_tokens) != (text.bytes, targets):
            return f"scored {score.val_bytes} bytes of {text.name}, not its {text.bytes}"
        if len(score.parts_bpb) != len(text.parts):
            return f"scored {len(score.parts_bpb)} parts of {text.name}, not its {len(text.parts)}"
        bits = (bpb * part.bytes for bpb, part in zip(score.parts_bpb, text.parts, strict=True))
        if not math.isclose(math.fsum(bits) / text.bytes, score.val_bpb, rel_tol=1e-9):
            return f"the score of {text.name} is not that of its parts together"
    return ""


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
