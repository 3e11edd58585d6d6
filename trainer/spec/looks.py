"""Which weights the held-out text is scored with, and when: the last ones, or others."""

from __future__ import annotations

import re
from typing import Literal, Self

from autoresearch.values import Frozen, PositiveInt


class Averaging(Frozen):
    """A mean of the weights after several steps, in place of those after the last.

    ``ema`` is the exponential moving average over all steps so far, whose weights fall by
    ``1 - 1/steps`` a step and are divided by their sum, so that the start is not in it more than
    any other step. ``lawa`` is the plain mean of the latest ``steps`` (Kaddour 2022, "Stop Wasting
    My Time!", arXiv 2209.14981, with every step a checkpoint).
    """

    form: Literal["ema", "lawa"]
    steps: PositiveInt

    def __str__(self) -> str:
        """``ema:20``"""
        return f"{self.form}:{self.steps}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What ``ema:20`` or ``lawa:20`` names.

        :raises ValueError: on anything else.
        """
        found = re.fullmatch(r"(ema|lawa):([1-9][0-9]{0,8})", text)
        if found is None:
            raise ValueError(
                f"{text!r} names no averaged weights; write it like 'ema:20' or 'lawa:20'"
            )
        return cls.model_validate({"form": found[1], "steps": int(found[2])})


class Look(Frozen):
    """One more scoring of the corpus' held-out text. It changes no other score of the trial, but
    what it takes: ``train_s``, which has the looks before the last step in it, and with it
    ``tokens_per_s``; ``eval_s``, peak memory, energy and ``elapsed_s``."""

    step: PositiveInt | None = None
    """After which; None: after the last."""
    average: Averaging | None = None
    """None: the weights as they are then."""
