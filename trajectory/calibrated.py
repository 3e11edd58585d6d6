"""Hold a calibration's result: how well proxy metrics rank configs compared with long runs."""

from pydantic import AliasChoices, Field

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.schema import Averaging, Budget, Checkpoint


class Correlation(Frozen):
    """A rank correlation, or a difference of two, and its 95 % interval."""

    value: Finite
    lo: Finite
    hi: Finite

    def __str__(self) -> str:
        """``0.71 (0.52 … 0.83)``"""
        return f"{self.value:.2f} ({self.lo:.2f} … {self.hi:.2f})"


class CalibrationRun(Frozen):
    """One training run of a config with one seed; the fields match those of a trial's spec."""

    steps: PositiveInt
    horizon_steps: PositiveInt | None
    cooldown_steps: NonNegativeInt = 0
    average: Averaging | None = None
    checkpoints: tuple[Checkpoint, ...] = Field(
        (), validation_alias=AliasChoices("checkpoints", "looks")
    )
    texts: bool = False
    """Whether the run also scores the holdout split."""


class ProxyMetric(Frozen):
    """One proxy metric, compared with long runs of the same configs."""

    name: str
    cost: NonNegative = 1.0
    """Seconds of training and scoring, relative to the campaign's own short run. Earlier versions
    also compared dearer metrics."""
    spearman: Correlation
    kendall: Correlation
    """Kendall's tau-b, with an interval bootstrapped over configs."""
    gain: Correlation | None = None
    """Its Spearman correlation minus that of the campaign's own metric, over the same resamples of
    configs; None for the campaign's own metric."""
    surely: Finite | None = None
    """Lower end of ``gain`` in an interval that holds for all metrics at once (Bonferroni). It
    corrects for choosing the luckiest of several metrics."""
    best: Correlation | None = None
    """Spearman's rho over the :attr:`Calibrated.best_n` best configs by long runs, with Fisher's
    interval; None if all of them tie."""
    forgone_bpb: NonNegative
    """Long-run loss of the config it ranks first, minus that of the best config."""


class Calibrated(Frozen):
    """The result of a calibration."""

    budget: Budget
    """Budget of the campaign's own short run."""
    long_steps: PositiveInt
    """Steps of a long run, at the baseline's step size."""
    long_seeds: PositiveInt
    n: PositiveInt
    """Number of configs: half spread over the menu, half near the best of those."""
    nonfinite: NonNegativeInt = 0
    """Configs among them whose long runs became non-finite; they rank last."""
    left_out: NonNegativeInt = 0
    """Configs excluded because a run ran out of memory or time, or crashed."""
    best_n: PositiveInt
    proxy_metrics: tuple[ProxyMetric, ...] = Field(
        min_length=1, validation_alias=AliasChoices("proxy_metrics", "ways")
    )
    """The first is the campaign's own."""
    steps_curve: tuple[tuple[Positive, Correlation], ...] = ()
    """Spearman's rho of longer short runs, in calibrations of earlier versions: steps relative to
    the budget's, ascending."""
    long_runs: Correlation | None = None
    """Spearman's rho of one long run with the mean of the others, a practical ceiling for any
    metric. None if each config has only one long run."""

    @property
    def own(self) -> ProxyMetric:
        """The proxy metric that the campaign uses."""
        return self.proxy_metrics[0]

    @property
    def headline(self) -> str:
        """One line that says how well the campaign's own short runs rank configs."""
        own = self.own
        best = f"; among the best {self.best_n} {own.best}" if own.best else ""
        return (
            f"{own.name} against {self.long_steps:,}, n = {self.n} configs over the menu: "
            f"Spearman {own.spearman}{best}"
        )

    @property
    def advised(self) -> ProxyMetric | None:
        """The best-ranking metric that costs at most 10 % more than the campaign's own and surely
        ranks better; None if there is none."""
        equal = [one for one in self.proxy_metrics if one.cost <= EQUAL_COST]
        better = [one for one in equal if one.surely is not None and one.surely > 0]
        return max(better, key=lambda one: one.spearman.value, default=None)


EQUAL_COST = 1.1
"""Highest cost of a metric that counts as equal, relative to the campaign's own short run."""
