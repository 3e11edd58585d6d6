"""Provide executors that train nothing."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoresearch.errors import AutoresearchError
from tests.support.trials import trial_ok
from trainer.executors.base import Executor, Finished, Job
from trainer.schema import CurvePoint, TrialFailed, TrialSpec


class InstantExecutor(Executor):
    """An executor whose trials end as soon as they are submitted."""

    @abstractmethod
    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        """Return the trial's result or raise its error; ``tell`` receives its curve."""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> Job:
        job = Job(spec, trial_dir)
        try:
            job.succeed(self.train(spec, trial_dir, job.arrive))
        except AutoresearchError as error:
            job.fail(error)
        return job

    def describe(self) -> str:
        return "no trial runs"

    def close(self) -> None:
        """Do nothing: no trial runs."""


class SteppingExecutor(InstantExecutor):
    """An executor whose trials report a first step of one second and then steps of 10 ms, or of
    8 ms on megatron."""

    def __init__(
        self, fails: Mapping[int | str, TrialFailed | BaseException] | None = None, **result: Any
    ) -> None:
        """:param fails: failures by the batch size or the backend.
        :param result: fields of every result.
        """
        self._fails = fails or {}
        self._result = result
        self.specs: list[TrialSpec] = []

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.specs.append(spec)
        failure = self._fails.get(spec.gpt.batch_size) or self._fails.get(spec.backend)
        if isinstance(failure, BaseException):
            raise failure
        if failure is not None:
            return Finished(failure, 1.0)
        steps, step_s = int(spec.budget.amount), 0.008 if spec.backend == "megatron" else 0.010
        for step in range(1, steps + 1):
            tell(
                CurvePoint(
                    step=step,
                    tokens=step * spec.gpt.tokens_per_step,
                    loss=5,
                    lr=1e-3,
                    grad_norm=1,
                    elapsed_s=1.0 + step_s * (step - 1),
                )
            )
        return Finished(trial_ok(spec, **self._result), 2.0)
