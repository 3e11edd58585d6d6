"""Means of a model's weights over the steps of its training, in fp32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trainer.spec import Averaging


class RunningAverage:
    """A mean of weights, updated step by step; see :class:`trainer.spec.Averaging`."""

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
