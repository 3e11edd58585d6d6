"""Score averaged weights, and weights from before the last step."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from trainer.schema import Averaging, Checkpoint, TrialSpec


class RunningAverage:
    """A mean of weights, updated step by step; see :class:`trainer.schema.Averaging`."""

    def __init__(self, model: nn.Module, averaging: Averaging, last: int | None) -> None:
        """
        :param last: the step after which the mean is read; ``lawa`` needs it beforehand.
        """
        self._parameters = list(model.parameters())
        self._kept = 1.0 if averaging.form == "lawa" else 1.0 - 1.0 / averaging.steps
        """The factor that each step applies to the weight of every earlier step."""
        self._first = 1
        if averaging.form == "lawa" and last is not None:
            self._first = max(1, last - averaging.steps + 1)
        self._last = last
        self._sum = 0.0
        """The sum of the weights of all steps in the mean."""
        self._mean: list[Tensor] = []

    @torch.no_grad()
    def take(self, step: int) -> None:
        """Add the weights after ``step`` to the mean; call this after every step."""
        if step < self._first or (self._last is not None and step > self._last):
            return
        self._sum = 1.0 + self._kept * self._sum
        now = [parameter.detach().float() for parameter in self._parameters]
        if not self._mean:
            self._mean = [weight.clone() for weight in now]
        else:
            torch._foreach_lerp_(self._mean, now, 1.0 / self._sum)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the mean's weights while the block runs, then restore its own."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._mean)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: list[Tensor]) -> None:
        # copy_ counts as a change, so the copies of parameters that products read are remade.
        for parameter, weight in zip(self._parameters, weights, strict=True):
            parameter.copy_(weight)


class Checkpoints:
    """The checkpoint evaluations that a spec requests besides that of its last weights.

    ``visit`` is called with a checkpoint's place in the spec and its step, while the model has the
    checkpoint's weights.
    """

    def __init__(
        self, model: nn.Module, spec: TrialSpec, visit: Callable[[int, int], None]
    ) -> None:
        self._spec, self._visit = spec, visit
        self._last = spec.steps
        asked = [Checkpoint(average=spec.average), *spec.checkpoints]
        keys = [key for checkpoint in asked if (key := self._key(checkpoint)) is not None]
        self._averages = {key: RunningAverage(model, *key) for key in dict.fromkeys(keys)}

    def after(self, step: int) -> None:
        """Update the averages, and visit the checkpoints of this step unless it is the last."""
        for average in self._averages.values():
            average.take(step)
        if step != self._last:
            self.visit(step)

    def visit(self, step: int) -> None:
        """Visit the checkpoints of this step, after which training stands."""
        for place, checkpoint in enumerate(self._spec.checkpoints):
            if self._step(checkpoint) == step:
                with self.weights(checkpoint):
                    self._visit(place, step)

    def weights(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Give the model a checkpoint's weights while the block runs; call it at its step."""
        key = self._key(checkpoint)
        return nullcontext() if key is None else self._averages[key].in_place()

    def _step(self, checkpoint: Checkpoint) -> int | None:
        return self._last if checkpoint.step is None else checkpoint.step

    def _key(self, checkpoint: Checkpoint) -> tuple[Averaging, int | None] | None:
        """Return the key of a checkpoint's average; an exponential average serves all steps."""
        average = checkpoint.average
        if average is None:
            return None
        return average, self._step(checkpoint) if average.form == "lawa" else None
