"""What a calibration found, as values: how far ways to measure a short run rank as long runs do."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.spec import Averaging, Budget, Checkpoint


class Correlation(Frozen):
    """A rank correlation, or a difference of two, and its 95 % interval."""

    value: Finite
    lo: Finite
    hi: Finite

    def __str__(self) -> str:
        """``0.71 (0.52 … 0.83)``"""
        return f"{self.value:.2f} ({self.lo:.2f} … {self.hi:.2f})"


class CalibrationRun(Frozen):
    """What a calibration trains of a config with one seed; fields as a trial's spec has them."""

    steps: PositiveInt
    horizon_steps: PositiveInt | None
    cooldown_steps: NonNegativeInt = 0
    average: Averaging | None = None
    looks: tuple[Checkpoint, ...] = ()
    texts: bool = False
    """Whether the text that is set aside is scored too."""


class Way(Frozen):
    """A way to measure a config, held against long runs of the same configs."""

    name: str
    cost: NonNegative
    """Seconds of training and scoring, over those of the campaign's own short run."""
    spearman: Correlation
    kendall: Correlation
    """Bootstrapped over configs."""
    gain: Correlation | None = None
    """Spearman less that of the campaign's own way, over the same resamples of configs; None for
    that way itself."""
    surely: Finite | None = None
    """The lower end of ``gain`` where it is to hold for all ways at once (Bonferroni): who picks
    among them picks by luck too."""
    best: Correlation | None = None
    """Spearman among :attr:`Calibrated.best_n` configs that long runs put first, by Fisher's
    transform; None where all of them tie."""
    forgone_bpb: NonNegative
    """By how much the config that it puts first is worse in the long run than the best one."""


class Calibrated(Frozen):
    """What a calibration ends with."""

    budget: Budget
    """Of the campaign's own short run."""
    long_steps: PositiveInt
    """Of a long run, of the baseline's size of a step."""
    long_seeds: PositiveInt
    n: PositiveInt
    """Configs, half of them spread over the menu and half near the best of those."""
    nonfinite: NonNegativeInt = 0
    """Configs among them whose long runs lost their numbers: they rank last."""
    left_out: NonNegativeInt = 0
    """Configs of which some run ended for want of memory or time, or crashed."""
    best_n: PositiveInt
    ways: Annotated[tuple[Way, ...], Field(min_length=1)]
    """The campaign's own first."""
    steps_curve: tuple[tuple[Positive, Correlation], ...] = ()
    """Spearman of longer short runs: steps over the budget's, ascending."""
    long_runs: Correlation | None = None
    """Spearman of one long run with the mean of the others: what ranks best can do little better.
    None where each config has but one."""

    @property
    def own(self) -> Way:
        """The way that the campaign measures by."""
        return self.ways[0]

    @property
    def headline(self) -> str:
        """One line: how far the campaign's own short runs rank as long ones do."""
        own = self.own
        best = f"; among the best {self.best_n} {own.best}" if own.best else ""
        return (
            f"{own.name} against {self.long_steps:,}, n = {self.n} configs over the menu: "
            f"Spearman {own.spearman}{best}"
        )

    @property
    def advised(self) -> Way | None:
        """The best ranking of the ways that cost at most a tenth more than the campaign's own and
        rank surely better; None where there is none."""
        equal = [way for way in self.ways if way.cost <= EQUAL_COST]
        better = [way for way in equal if way.surely is not None and way.surely > 0]
        return max(better, key=lambda way: way.spearman.value, default=None)


EQUAL_COST = 1.1
"""Over the campaign's own short run."""
