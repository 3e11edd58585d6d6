"""Define how long a run trains, over which schedule, and which weights it scores, and when.

Each field of :class:`RunSchedule` is declared here and only here: a trial's spec, a campaign's
settings, its first row and a menu's defaults inherit it, and its description is the help of its
option.
"""

from __future__ import annotations

import re
from operator import not_
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from autoresearch.errors import SpecError
from autoresearch.options import AsOption
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt


def uncompiled(said: Any) -> Any:
    """Return the fields of a record without ``compile = false``, which earlier versions wrote.

    :raises ValueError: if it is true, since such scores differ in the last digits.
    """
    if not isinstance(said, dict) or "compile" not in said:
        return said
    if said["compile"] is not False:
        raise ValueError(
            f"compile is {said['compile']!r}, and this version trains without torch.compile, which"
            " was no faster; begin another campaign"
        )
    return {name: value for name, value in said.items() if name != "compile"}


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


class Budget(Frozen):
    """Length of training."""

    unit: Literal["steps", "tokens", "seconds", "run"] = "steps"
    """``run``: everything a command does, however long that is."""
    amount: Positive = 60

    @model_validator(mode="after")
    def _whole_where_counted(self) -> Self:
        if self.unit == "run" and self.amount != 1:
            raise ValueError(f"a budget of {self.amount:g} run is not 1 run")
        if self.unit != "seconds" and self.amount != int(self.amount):
            raise ValueError(f"a budget of {self.amount} {self.unit} is not a whole number")
        return self

    def __str__(self) -> str:
        return f"{self.amount:.15g} {self.unit}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``60 steps``, ``2e6 tokens`` or ``30 seconds``.

        :raises SpecError: on anything else.
        """
        try:
            amount, unit = text.split()
            return cls.model_validate({"unit": unit, "amount": float(amount)})
        except ValueError as error:
            raise SpecError(
                f"a budget of {text!r} cannot be read; write it like '60 steps', "
                "'2000000 tokens' or '30 seconds'"
            ) from error

    def steps(self, tokens_per_step: int | None) -> int | None:
        """Return the optimizer steps of this budget, rounded up; None if only the trainer or a
        clock knows."""
        if self.unit == "steps":
            return int(self.amount)
        if self.unit == "tokens" and tokens_per_step is not None:
            return -(-int(self.amount) // tokens_per_step)
        return None


def _budget(value: Any) -> Any:
    if isinstance(value, (Budget, dict)):
        return value
    try:
        return Budget.parse(str(value))
    except SpecError as error:
        raise ValueError(str(error)) from error


def _horizon(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value == "budget":
        return None
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither a number of steps nor 'budget'") from None


def _averaging(value: Any) -> Any:
    if value is None or isinstance(value, (Averaging, dict)):
        return value
    return None if value == "none" else Averaging.parse(str(value))


class RunSchedule(Frozen):
    """The length of a run, its learning-rate schedule, and the weights that are scored."""

    _without_compile = model_validator(mode="before")(uncompiled)

    budget: Annotated[Budget, BeforeValidator(_budget)] = Field(
        Budget(),
        description="Length of a trial: '60 steps', '2e6 tokens' or '30 seconds'. "
        "Default: the menu's.",
    )
    horizon_steps: Annotated[
        PositiveInt | None,
        BeforeValidator(_horizon),
        AsOption(by_set=True, none="budget"),
    ] = Field(
        1000,
        description="Length of the learning-rate schedule in steps, of which a trial runs the "
        "beginning, or 'budget'. Default: the menu's.",
    )
    """Steps over which the rate would decay to ``lr_min_ratio``; the trained steps are a prefix of
    it. None: the budget itself."""
    # The fields below are omitted from JSON if unused, so that older specs and rows are unchanged.
    cooldown_steps: Annotated[NonNegativeInt, AsOption(by_set=True, built_in=True)] = Field(
        0,
        exclude_if=not_,
        description="Steps at the end of a trial over which the learning rate decays to zero.",
    )
    """The rate falls linearly, from wherever the schedule has it."""
    average: Annotated[
        Averaging | None,
        BeforeValidator(_averaging),
        AsOption(by_set=True, built_in=True),
    ] = Field(
        None,
        exclude_if=not_,
        description="Average the weights before scoring: 'ema:STEPS', 'lawa:STEPS' or 'none'.",
    )
    """Weights that are scored in place of those after the last step, for ``val_bpb`` and ``texts``.
    Costs four bytes of memory per parameter."""

    @property
    def schedule(self) -> RunSchedule:
        """Return these settings alone, without those of a subclass."""
        return RunSchedule.model_construct(
            **{name: getattr(self, name) for name in RunSchedule.model_fields}
        )
