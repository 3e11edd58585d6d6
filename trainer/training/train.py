"""The step loop: one code path for CPU and CUDA, in which the host does not wait for the GPU.

The device copies each step's loss and gradient norm to pinned memory, and the host reads them once
they have arrived, a step or two later. The device itself skips the update of a loss that is not
finite (:mod:`trainer.backends.optimizer`). The host waits only at the last step and at a pruning
decision. Nothing else in a step waits: the learning rate is an argument of a kernel, batches come
from pinned memory, and no tensor is converted to a Python number.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor, nn

from autoresearch.values import Frozen
from trainer.backends.optimizer import optimizer_of
from trainer.schema import Config, CurvePoint, FailureStatus, Pruner, PruneRule
from trainer.training.schedule import Batches, Schedule


class TrialStopped(Exception):
    """Training ended before its budget was spent; the reason is a result, not an error."""

    def __init__(self, status: FailureStatus, message: str, steps: int) -> None:
        super().__init__(message)
        self.status: FailureStatus = status
        self.steps = steps
        """Optimizer steps that took effect."""


class Trained(Frozen):
    """The measurements of a finished training run; see :class:`trainer.schema.TrialOk`."""

    train_loss_first: float
    train_loss_last: float
    steps: int
    tokens: int
    step_ms: float
    tokens_per_s: float
    train_s: float


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step handed to the device; its numbers may not have arrived yet."""

    step: int
    lr: float
    numbers_2: Tensor
    """Loss and gradient norm, in the host's memory once ``done``."""
    done: Mark


def train(
    model: nn.Module,
    batches: Batches,
    schedule: Schedule,
    *,
    log_every: int,
    prune: PruneRule | None,
    report: Callable[[CurvePoint], None],
    after_step: Callable[[int], None] = lambda _: None,
) -> Trained:
    """Train ``model`` until the schedule's end.

    ``report`` gets a point of the first step, of every ``log_every``-th step and of the last.
    ``after_step`` is called after each step whose update was handed to the device. It must leave
    weights and mode unchanged, and its time counts.

    :raises TrialStopped: ``nonfinite`` at the first loss or gradient norm that is not finite, whose
        update did not happen; ``pruned`` if the rule decides so.
    """
    config = schedule.config
    optimizer = optimizer_of(model, config)
    pending: deque[PendingStep] = deque()
    model.train()
    tokens_BT, targets_BT = batches(1)
    clock = Clock(next(model.parameters()).device)
    host = _Host(config, clock, log_every, prune, report)
    step, last = 0, False
    while not last:
        step += 1
        lr = schedule.lr(step, clock.elapsed_s())
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        numbers_2 = torch.stack((loss.detach(), optimizer.step(loss, lr)))
        # From CUDA this copies to pinned memory; on a CPU it copies nothing.
        on_host_2 = numbers_2.to("cpu", non_blocking=True)
        tokens_BT, targets_BT = batches(step + 1)
        pending.append(PendingStep(step, lr, on_host_2, clock.mark()))
        last = schedule.is_last(step, clock.elapsed_s())
        must_know = last or (prune is not None and step == prune.at_step)
        for done in arrived(pending, wait=must_know):
            host.take(done, is_last=last and done.step == step)
        after_step(step)
    return host.trained(step)


def arrived(pending: deque[PendingStep], *, wait: bool) -> Iterator[PendingStep]:
    """Take the finished steps from ``pending``, in order; if ``wait``, wait for all of them."""
    while pending and (wait or pending[0].done.reached()):
        step = pending.popleft()
        step.done.wait()
        yield step


class _Host:
    """The losses that the host has read, their curve, and the decisions that they imply."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        log_every: int,
        prune: PruneRule | None,
        report: Callable[[CurvePoint], None],
    ) -> None:
        self._config, self._clock = config, clock
        self._log_every, self._report = log_every, report
        self._pruner = Pruner(prune)
        self.loss_first = self.loss_last = float("nan")

    def take(self, done: PendingStep, *, is_last: bool) -> None:
        """Read the next step's numbers, and report the curve's point if it has one.

        :raises TrialStopped: if the trial must end with this step.
        """
        loss, grad_norm = done.numbers_2.tolist()
        step = done.step
        # x - x is 0 for a finite x and NaN for any other.
        if (loss - loss) + (grad_norm - grad_norm) != 0.0:
            what = f"loss was {loss}" if loss - loss != 0.0 else f"gradient norm was {grad_norm}"
            raise TrialStopped(
                "nonfinite",
                f"the {what} at step {step}, whose learning rate was {done.lr:.3g};"
                " a smaller lr or a longer warm-up may hold",
                step - 1,
            )
        if step == 1:
            self.loss_first = loss
        self.loss_last = loss
        self._pruner.take(step, loss)
        if self._pruner.why:
            raise TrialStopped("pruned", self._pruner.why, step)
        if is_last or step == 1 or step % self._log_every == 0:
            self._report(
                CurvePoint(
                    step=step,
                    tokens=step * self._config.tokens_per_step,
                    loss=loss,
                    lr=done.lr,
                    grad_norm=grad_norm,
                    elapsed_s=self._clock.at_s(done.done),
                )
            )

    def trained(self, steps: int) -> Trained:
        """Return the measurements of a run that ended after so many steps."""
        tokens, train_s = steps * self._config.tokens_per_step, self._clock.elapsed_s()
        return Trained(
            train_loss_first=self.loss_first,
            train_loss_last=self.loss_last,
            steps=steps,
            tokens=tokens,
            step_ms=self._clock.step_ms(),
            tokens_per_s=tokens / train_s,
            train_s=train_s,
        )


class Mark:
    """The end of the work that the device had been given when the mark was made.

    On a CPU, work is done when the call returns. On a GPU, a mark is an event in a CUDA stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._at = time.perf_counter()
        self._event = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    def reached(self) -> bool:
        """Return whether the device has reached the mark, without waiting."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait until the device reaches the mark."""
        if self._event is not None:
            self._event.synchronize()

    def since_s(self, earlier: Mark) -> float:
        """Return the seconds from another mark of this clock; both must be reached."""
        if self._event is None or earlier._event is None:
            return self._at - earlier._at
        return float(earlier._event.elapsed_time(self._event)) / 1000.0


class Clock:
    """The time of each step, by the device's own clock if it has one."""

    def __init__(self, device: torch.device) -> None:
        """Start the clock, as the first step begins."""
        self._device = device
        self._began = time.perf_counter()
        self._marks = [Mark(device)]

    def mark(self) -> Mark:
        """Mark the end of a step that was handed to the device."""
        self._marks.append(Mark(self._device))
        return self._marks[-1]

    def elapsed_s(self) -> float:
        """Return the seconds since the start, by the host, which may be ahead of the device."""
        return time.perf_counter() - self._began

    def at_s(self, mark: Mark) -> float:
        """Return when the device reached the mark, in seconds since the start."""
        return mark.since_s(self._marks[0])

    def step_ms(self) -> float:
        """Return the median over the steps after the first; the device must have finished them."""
        steps_ms = [1000.0 * later.since_s(earlier) for earlier, later in pairwise(self._marks)]
        return median(steps_ms[1:] or steps_ms)
