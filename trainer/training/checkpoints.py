"""Score averaged weights, and weights from before the last step."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor, nn

from trainer.corpus import Corpus
from trainer.spec import Averaging, Checkpoint, TrialSpec
from trainer.training.scoring import score_heldout


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


_Key: TypeAlias = tuple[Averaging, int | None]


class Checkpoints:
    """The checkpoint evaluations that a spec requests besides that of its last weights.

    Call it after every step: it updates the averages, and scores a checkpoint when its step comes.
    """

    def __init__(self, model: nn.Module, corpus: Corpus, spec: TrialSpec) -> None:
        self._model, self._corpus, self._spec = model, corpus, spec
        self._last = spec.budget.steps(spec.config.tokens_per_step)
        asked = [Checkpoint(average=spec.average), *spec.checkpoints]
        keys = [key for checkpoint in asked if (key := self._key(checkpoint)) is not None]
        self._averages = {key: RunningAverage(model, *key) for key in dict.fromkeys(keys)}
        self._found: dict[int, float] = {}
        """Bits per byte by the checkpoint's place in the spec."""

    def after(self, step: int) -> None:
        """Update the averages, and score the checkpoints of this step.

        :raises TrialStopped: if a loss is not finite.
        """
        for average in self._averages.values():
            average.take(step)
        if step != self._last:
            self._score(step)

    def at_the_end(self, step: int) -> tuple[float, ...]:
        """Score the last step's checkpoints; return all bits per byte in the spec's order.

        :raises TrialStopped: if a loss is not finite.
        """
        self._score(step)
        return tuple(self._found[place] for place in range(len(self._spec.checkpoints)))

    def _score(self, step: int) -> None:
        for place, checkpoint in enumerate(self._spec.checkpoints):
            if self._step(checkpoint) == step:
                with self.weights(checkpoint):
                    scored = score_heldout(self._model, self._corpus, self._spec, step)
                self._model.train()
                self._found[place] = scored.bits_per_byte(self._corpus.info.heldout_bytes)

    def weights(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Give the model a checkpoint's weights while the block runs; call it at its step."""
        key = self._key(checkpoint)
        return nullcontext() if key is None else self._averages[key].in_place()

    def _step(self, checkpoint: Checkpoint) -> int | None:
        return self._last if checkpoint.step is None else checkpoint.step

    def _key(self, checkpoint: Checkpoint) -> _Key | None:
        """Return the key of a checkpoint's average; an exponential average serves all steps."""
        if checkpoint.average is None:
            return None
        return checkpoint.average, self._step(
            checkpoint
        ) if checkpoint.average.form == "lawa" else None
