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
from statistics import fmean, median
from typing import Protocol

import torch
from torch import Tensor, nn

from trainer.backends.optimizer import optimizer_of
from trainer.spec import Config, CurvePoint, FailureStatus, PruneRule
from trainer.training.data import Batches
from trainer.training.schedule import Schedule


class TrialStopped(Exception):
    """Training ended before its budget was spent; the reason is a result, not an error."""

    def __init__(self, status: FailureStatus, message: str, steps: int) -> None:
        super().__init__(message)
        self.status: FailureStatus = status
        self.steps = steps
        """Optimizer steps that took effect."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The measurements of a finished training run."""

    steps: int
    tokens: int
    loss_first: float
    loss_last: float
    step_ms: float
    """Median over the steps after the first, or the only step's time."""
    train_s: float


@dataclass(frozen=True, slots=True)
class Step:
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
    after_step: Callable[[int], None] | None = None,
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
    clock = Clock(next(model.parameters()).device)
    losses = _Losses(prune)
    pending: deque[Step] = deque()
    model.train()
    tokens_BT, targets_BT = batches(1)
    clock.start()
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
        pending.append(Step(step, lr, on_host_2, clock.mark()))
        last = schedule.is_last(step, clock.elapsed_s())
        must_know = last or (prune is not None and step == prune.at_step)
        for done in arrived(pending, wait=must_know):
            loss_nats, grad_norm = losses.take(done)
            ends = last and done.step == step
            if ends or done.step == 1 or done.step % log_every == 0:
                report(_point(done, loss_nats, grad_norm, config, clock))
        if after_step is not None:
            after_step(step)
    return Trained(
        steps=step,
        tokens=step * config.tokens_per_step,
        loss_first=losses.first,
        loss_last=losses.last,
        step_ms=clock.step_ms(),
        train_s=clock.elapsed_s(),
    )


def _point(
    step: Step, loss_nats: float, grad_norm: float, config: Config, clock: Clock
) -> CurvePoint:
    return CurvePoint(
        step=step.step,
        tokens=step.step * config.tokens_per_step,
        loss=loss_nats,
        lr=step.lr,
        grad_norm=grad_norm,
        elapsed_s=clock.at_s(step.done),
    )


def arrived(pending: deque[Step], *, wait: bool) -> Iterator[Step]:
    """Take the finished steps from ``pending``, in order; if ``wait``, wait for all of them."""
    while pending and (wait or pending[0].done.reached()):
        step = pending.popleft()
        step.done.wait()
        yield step


class _Losses:
    """The losses that the host has read, and the decisions that they imply."""

    def __init__(self, prune: PruneRule | None) -> None:
        self._prune = prune
        self._recent: deque[float] = deque(maxlen=1 if prune is None else prune.window)
        self.first = float("nan")
        self.last = float("nan")

    def take(self, done: Step) -> tuple[float, float]:
        """Return loss and gradient norm of the next step.

        :raises TrialStopped: if the trial must end with this step.
        """
        loss, grad_norm = done.numbers_2.tolist()
        self._judge(done, loss, grad_norm)
        return loss, grad_norm

    def _judge(self, done: Step, loss: float, grad_norm: float) -> None:
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
            self.first = loss
        self.last = loss
        self._recent.append(loss)
        rule = self._prune
        if rule is not None and step == rule.at_step and fmean(self._recent) > rule.max_loss:
            raise TrialStopped(
                "pruned",
                f"the mean training loss of the {len(self._recent)} steps up to {step} was"
                f" {fmean(self._recent):.4g}, above the {rule.max_loss:.4g} at which a config is"
                " stopped, given its reference",
                step,
            )


class Mark(Protocol):
    """The end of the work that the device had been given when the mark was made."""

    def reached(self) -> bool:
        """Return whether the device has reached the mark, without waiting."""
        ...

    def wait(self) -> None:
        """Wait until the device reaches the mark."""
        ...

    def since_s(self, earlier: Mark) -> float:
        """Return the seconds from another mark of this clock; both must be reached."""
        ...


class Clock:
    """The time of each step, by the device's own clock if it has one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = time.perf_counter()
        self._marks: list[Mark] = []

    def start(self) -> None:
        """Start the clock, as the first step begins."""
        self._began = time.perf_counter()
        self._marks = []
        self.mark()

    def mark(self) -> Mark:
        """Mark the end of a step that was handed to the device."""
        on_cuda = self._device.type == "cuda"
        self._marks.append(_DeviceMark(self._device) if on_cuda else _HostMark())
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


class _HostMark:
    """A mark on a CPU, where work is done when the call returns."""

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def reached(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def since_s(self, earlier: Mark) -> float:
        assert isinstance(earlier, _HostMark)
        return self._at - earlier._at


class _DeviceMark:
    """A mark on a GPU: an event in a CUDA stream."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def reached(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self._event.synchronize()

    def since_s(self, earlier: Mark) -> float:
        assert isinstance(earlier, _DeviceMark)
        return float(earlier._event.elapsed_time(self._event)) / 1000.0
