"""Define additional evaluations of a trial: at which step, and with which weights."""

from __future__ import annotations

import re
from typing import Literal, Self

from autoresearch.values import Frozen, PositiveInt


class Averaging(Frozen):
    """Mean of the weights after several steps, in place of those after the last.

    ``ema`` is the exponential moving average over all steps so far. Its weights fall by ``1 -
    1/steps`` per step and are divided by their sum, so the start does not weigh more than any other
    step. ``lawa`` is the plain mean of the latest ``steps`` (Kaddour 2022, "Stop Wasting My Time!",
    arXiv 2209.14981, with every step a checkpoint).
    """

    form: Literal["ema", "lawa"]
    steps: PositiveInt

    def __str__(self) -> str:
        """Return ``ema:20``."""
        return f"{self.form}:{self.steps}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``ema:20`` or ``lawa:20``.

        :raises ValueError: on anything else.
        """
        found = re.fullmatch(r"(ema|lawa):([1-9][0-9]{0,8})", text)
        if found is None:
            raise ValueError(
                f"{text!r} is not an average of weights; write it like 'ema:20' or 'lawa:20'"
            )
        return cls.model_validate({"form": found[1], "steps": int(found[2])})


class Checkpoint(Frozen):
    """One more evaluation on the corpus' held-out text. It leaves the trial's other scores
    unchanged, but not its costs: ``train_s`` and ``tokens_per_s`` include evaluations before the
    last step. ``eval_s``, peak memory, energy and ``elapsed_s`` grow too."""

    step: PositiveInt | None = None
    """Step after which to evaluate; None: the last."""
    average: Averaging | None = None
    """None: the weights at that step."""
