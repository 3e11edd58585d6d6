"""The step loop: one code path for CPU and CUDA, and no host synchronisation but to log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median

import torch
from torch import Tensor, nn

from trainer.data import Batches
from trainer.optimizer import AdamW
from trainer.schedule import Schedule
from trainer.spec import CurvePoint, FailureStatus, PruneRule


class TrialStopped(Exception):
    """Training ended before its budget; the reason is a result, not an error."""

    def __init__(self, status: FailureStatus, message: str, steps: int) -> None:
        super().__init__(message)
        self.status: FailureStatus = status
        self.steps = steps
        """Optimizer steps that took effect."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What training tells about itself."""

    steps: int
    tokens: int
    loss_first: float
    loss_last: float
    step_ms: float
    """Median over the steps after the first; of the only one where there is but one."""
    train_s: float


@dataclass(frozen=True, slots=True)
class _Measured:
    """A step whose numbers may still be on their way from the device."""

    step: int
    lr: float
    loss: Tensor
    grad_norm: Tensor


def train(
    model: nn.Module,
    batches: Batches,
    schedule: Schedule,
    *,
    log_every: int,
    prune: PruneRule | None,
    report: Callable[[CurvePoint], None],
) -> Trained:
    """Train ``model`` until the schedule's end.

    ``report`` gets a point of the first step, every ``log_every``-th and the last.

    :raises TrialStopped: ``nonfinite`` with the first loss or gradient norm that is not finite,
        whose update did not happen; ``pruned`` where the rule says so.
    """
    config = schedule.config
    device = next(model.parameters()).device
    optimizer = AdamW(
        model.parameters(),
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
    )
    clock = Clock(device)
    losses = _Losses(prune)
    pending: list[_Measured] = []
    model.train()
    tokens_BT, targets_BT = batches(1)
    clock.start()
    step, last = 0, False
    while not last:
        step += 1
        lr = schedule.lr(step, clock.elapsed_s())
        loss = model(tokens_BT, targets_BT).mean()
        loss.backward()
        pending.append(_Measured(step, lr, loss.detach(), optimizer.step(loss, lr)))
        tokens_BT, targets_BT = batches(step + 1)
        clock.step_done()
        last = schedule.is_last(step, clock.elapsed_s())
        logged = last or step == 1 or step % log_every == 0
        # On CPU looking costs nothing; on CUDA it waits for the device.
        if logged or device.type == "cpu" or (prune is not None and step == prune.at_step):
            numbers = losses.take(pending)
            if logged:
                tokens = step * config.tokens_per_step
                report(_point(*numbers, lr=lr, tokens=tokens, elapsed_s=clock.elapsed_s()))
    return Trained(
        steps=step,
        tokens=step * config.tokens_per_step,
        loss_first=losses.first,
        loss_last=losses.last,
        step_ms=clock.step_ms(),
        train_s=clock.elapsed_s(),
    )


def _point(
    step: int, loss: float, grad_norm: float, *, lr: float, tokens: int, elapsed_s: float
) -> CurvePoint:
    return CurvePoint(
        step=step, tokens=tokens, loss=loss, lr=lr, grad_norm=grad_norm, elapsed_s=elapsed_s
    )


class _Losses:
    """The losses the host has seen, and what they mean."""

    def __init__(self, prune: PruneRule | None) -> None:
        self._prune = prune
        self._recent: deque[float] = deque(maxlen=1 if prune is None else prune.window)
        self.first = float("nan")
        self.last = float("nan")

    def take(self, pending: list[_Measured]) -> tuple[int, float, float]:
        """Wait for the pending steps, judge them, and forget them.

        Returns step, loss and gradient norm of the last of them.
        """
        numbers = torch.stack([torch.stack((m.loss, m.grad_norm)) for m in pending]).tolist()
        for measured, (loss, grad_norm) in zip(pending, numbers, strict=True):
            self._judge(measured, loss, grad_norm)
        step = pending[-1].step
        pending.clear()
        return step, *numbers[-1]

    def _judge(self, measured: _Measured, loss: float, grad_norm: float) -> None:
        step = measured.step
        # x - x is 0 for a finite x and NaN for any other.
        if (loss - loss) + (grad_norm - grad_norm) != 0.0:
            what = f"loss was {loss}" if loss - loss != 0.0 else f"gradient norm was {grad_norm}"
            raise TrialStopped(
                "nonfinite",
                f"the {what} at step {step}, whose learning rate was {measured.lr:.3g};"
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
                " hopeless against its reference",
                step,
            )


class Clock:
    """Time since the first step began, and of each step, without waiting for the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = time.perf_counter()
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def start(self) -> None:
        """The first step begins now."""
        self._began = time.perf_counter()
        self.step_done()

    def step_done(self) -> None:
        """A step has been handed to the device."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            self._events.append(event)
        else:
            self._marks.append(time.perf_counter())

    def elapsed_s(self) -> float:
        """By the host's clock."""
        return time.perf_counter() - self._began

    def step_ms(self) -> float:
        """Median over the steps after the first; the device must have finished them."""
        if self._device.type == "cuda":
            pairs = zip(self._events, self._events[1:], strict=False)
            steps_ms = [float(a.elapsed_time(b)) for a, b in pairs]
        else:
            marks = zip(self._marks, self._marks[1:], strict=False)
            steps_ms = [1000.0 * (b - a) for a, b in marks]
        return median(steps_ms[1:] or steps_ms)
