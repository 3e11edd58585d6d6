"""The candidates on a GPU, and one lap of each: a 60-step trial, from its spec to its result."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from autoresearch.errors import AutoresearchError
from autoresearch.values import Frozen, NonNegative
from trainer.corpus import Corpus
from trainer.executors.base import Executor
from trainer.executors.local import LocalExecutor
from trainer.schema import Budget, Config, Limits, TrialFailed, TrialOk, TrialSpec, parse_result

ROOT = Path(__file__).parents[1]
LOG_EVERY = 10
"""The same interval as in a campaign on a GPU."""

Start = Literal["cold", "warm"]


class Lap(Frozen):
    """One trial of one candidate."""

    candidate: str
    start: Start
    """``cold``: a new process that imports torch, with compiled code only from earlier laps;
    ``warm``: from a fork server, as in a campaign."""
    wall_s: NonNegative
    """Time from the spec to the result."""
    result: TrialOk


class DidNotRun(Exception):
    """A candidate cannot run here; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task that every candidate trains."""

    config: Config
    corpus: Corpus
    device: str
    steps: int
    directory: Path

    def spec(self, name: str, wall_s: float, **changes: Any) -> TrialSpec:
        """Return the trial's spec with changed fields; ``precision`` is a field of its config."""
        changes["compile_cache"] = str(self.directory / "compiled")
        precision = changes.pop("precision", self.config.precision)
        config = self.config.model_copy(update={"precision": precision})
        return TrialSpec(
            trial_id=name,
            config=config,
            seed=0,
            corpus_dir=str(self.corpus.directory),
            corpus_sha256=self.corpus.info.sha256,
            budget=Budget(amount=self.steps),
            device=self.device,
            log_every=LOG_EVERY,
            limits=Limits(wall_s=wall_s),
            **changes,
        )


class Candidate(Protocol):
    """One way to train the task."""

    @property
    def name(self) -> str: ...

    @property
    def is_judged(self) -> bool:
        """Return whether the goals apply to it; then it also has a cold lap."""
        ...

    def lap(self, task: Task, executor: Executor | None, number: int, wall_s: float) -> Lap:
        """Run one lap.

        :param executor: a warm one, or None to start cold.
        :param number: the lap's number, which names its directory.
        :param wall_s: the time limit.
        :raises DidNotRun: if it cannot run; the message gives the reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """A trial of the product."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    """Changed fields of the spec."""
    is_judged: bool = False

    def lap(self, task: Task, executor: Executor | None, number: int, wall_s: float) -> Lap:
        """See :class:`Candidate`."""
        trial_dir = task.directory / "trials" / f"{number:02d}-{self.name.replace(' ', '-')}"
        began = time.monotonic()
        try:
            spec = task.spec(trial_dir.name, wall_s, **self.changes)
            if executor is None:
                with LocalExecutor(allow_unsandboxed=True) as cold:
                    result = cold.run(spec, trial_dir).result
            else:
                result = executor.run(spec, trial_dir).result
        except (AutoresearchError, ValueError) as error:
            raise DidNotRun(str(error)) from error
        passed_s = time.monotonic() - began
        if isinstance(result, TrialFailed):
            raise DidNotRun(f"it ended as {result.status}: {result.message}")
        assert isinstance(result, TrialOk)
        start: Start = "cold" if executor is None else "warm"
        return Lap(candidate=self.name, start=start, wall_s=passed_s, result=result)


@dataclass(frozen=True, slots=True)
class ByHand:
    """The hand-written reference, in a new process each time."""

    name: str = "reference"
    is_judged: bool = True

    def lap(self, task: Task, executor: Executor | None, number: int, wall_s: float) -> Lap:
        """See :class:`Candidate`; it always starts cold."""
        out = task.directory / "trials" / f"{number:02d}-{self.name}"
        out.mkdir(parents=True)
        began = time.monotonic()
        (out / "spec.json").write_text(task.spec(out.name, wall_s).model_dump_json())
        command = [sys.executable, "-m", "bench.reference_gpt", str(out / "spec.json"), str(out)]
        with (out / "log").open("w") as log:
            try:
                code = subprocess.run(
                    command,
                    cwd=ROOT,
                    env=os.environ,
                    stdout=log,
                    stderr=log,
                    timeout=wall_s,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise DidNotRun(f"it was not done within {wall_s:.0f} s") from error
        if code != 0:
            said = (out / "log").read_text(errors="replace").strip().splitlines() or ["nothing"]
            raise DidNotRun(f"it ended with exit code {code}: {said[-1]}")
        result = parse_result((out / "result.json").read_bytes())
        assert isinstance(result, TrialOk)
        return Lap(
            candidate=self.name, start="cold", wall_s=time.monotonic() - began, result=result
        )


DEFAULT = "torch bf16"
"""The default of a campaign, to which the goals apply. All others run and are printed beside it."""


def candidates() -> list[Candidate]:
    """Return all candidates, first those that the goals apply to."""
    return [
        Ours(DEFAULT, is_judged=True),
        ByHand(),
        Ours("megatron bf16", {"backend": "megatron"}),
        Ours("megatron fp8", {"backend": "megatron", "precision": "fp8"}),
    ]
