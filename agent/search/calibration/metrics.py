"""Score each proxy metric on a config's runs, with the seconds it takes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from agent.search.calibration.plan import QUARTERS, CalibrationPlan, Kind, Planned
from trainer.spec import AnyConfig, TrialFailed, TrialOk, TrialResult
from trajectory.calibrated import Calibrated
from trajectory.calibration import (
    FEWEST,
    Scored,
    best_of,
    compared,
    correlation_of,
    extrapolated,
    fitted,
)

FITTED = "all checkpoints of one run, fitted"


@dataclass(frozen=True, slots=True)
class Measured:
    """A config measured by one proxy metric."""

    score: float
    """Infinite if the loss was not finite."""
    seconds: float
    """Seconds of training and scoring."""


def is_uninformative(result: TrialResult) -> bool:
    """Return whether a run gives no information: it ran out of memory or time, or crashed. A loss
    that was not finite is information."""
    return isinstance(result, TrialFailed) and result.status != "nonfinite"


@dataclass(frozen=True, slots=True)
class ConfigRuns:
    """The runs of one config: all of them, or those up to the first that gives no information."""

    plan: CalibrationPlan
    config: AnyConfig
    results: Mapping[Planned, TrialOk | TrialFailed]

    @property
    def complete(self) -> bool:
        """Whether every run gave information."""
        return not any(is_uninformative(one) for one in self.results.values())

    @property
    def own_score(self) -> float:
        """Score by the campaign's own proxy metric."""
        return _score(self._own)

    @property
    def long_score(self) -> float:
        """Mean score of the long runs; infinite if one of them was not finite."""
        return fmean(self.long_scores())

    def metrics(self) -> dict[str, Measured]:
        """Return the config's measurement by each proxy metric of these runs, the campaign's own
        first."""
        steps, base = self._steps, self.plan.campaign.menu.baseline
        settings = self.plan.campaign.settings
        scoring, whole = self._scoring_s, self._seconds(self._steps)
        own = f"{self.plan.budget_steps(base)} steps of {self.plan.horizon(base)}"
        own += f", cooldown {settings.cooldown_steps}" if settings.cooldown_steps else ""
        own += f", {settings.average}" if settings.average else ""
        found = {own: Measured(self.own_score, whole)}
        labels = [str(average) for average in self.plan.averages(base)]
        for place, label in enumerate(labels):
            if label != str(settings.average):
                score = self._at(len(QUARTERS) + 1 + place)
                found[f"weights {label}"] = Measured(score, whole)
        if settings.average is not None:
            found["weights as they are"] = Measured(self._at(len(QUARTERS)), whole)
        for planned, one in self.results.items():
            if planned.metric:
                found[planned.metric] = Measured(_score(one), whole)
        (half,) = self._of("half")
        both = fmean([self._at(QUARTERS.index(2)), _score(half)])
        halves = ceil(self.plan.budget_steps(base) / 2)
        found[f"two seeds of {halves} steps"] = Measured(both, 2 * self._seconds(ceil(steps / 2)))
        if text := self._with_text():
            name, score, seconds = text
            found[name] = Measured(score, seconds)
        steps_of = [ceil(steps * quarter / 4) for quarter in QUARTERS]
        points = [(step, self._at(place)) for place, step in enumerate([*steps_of, steps])]
        curve = extrapolated(points, self.plan.long_of(self.config))
        seconds = whole + len(QUARTERS) * scoring
        found["quarters of the curve, extrapolated"] = Measured(curve, seconds)
        for times, score in self.longer().items():
            if times > 1:
                name = f"{round(times * self.plan.budget_steps(base))} steps"
                found[name] = Measured(score, self._seconds(round(times * steps)))
        return found

    def longer(self) -> dict[float, float]:
        """Return the scores by training length, as a multiple of the budget. The schedule is the
        campaign's, without a cooldown and averages."""
        plain = self._at(len(QUARTERS))  # the score from the last weights
        if self.plan.campaign.settings.cooldown_steps:
            plain = _at(self._of("horizon")[0], 0)
        found = {0.5: self._at(QUARTERS.index(2)), 1.0: plain}
        for one in self._of("longer"):
            # The last length is the run's score, the others are checkpoint evaluations.
            found |= {float(times): _at(one, at) for at, times in enumerate(self.plan.longer)}
        return found

    def features(self) -> list[float]:
        """Return all scores of the own run, its checkpoint evaluations included, as inputs of a
        fit."""
        run = next(planned.run for planned in self.results if planned.kind == "own")
        text = self._with_text()
        scores = [self._at(place) for place in range(len(run.checkpoints))]
        return [self.own_score, *scores, *([text[1]] if text else [])]

    def features_s(self) -> float:
        """Return the seconds that the features take to measure."""
        text, whole = self._with_text(), self._seconds(self._steps)
        scores = len(self.features()) - (2 if text else 1)
        return (text[2] if text else whole) + scores * self._scoring_s

    def _with_text(self) -> tuple[str, float, float] | None:
        """Return the score on the held-out text and the holdout split together; None if there is no
        holdout."""
        if not self.plan.texts.scored:
            return None
        (text,) = self.plan.texts.scored
        info = self.plan.campaign.corpus.info
        times = (info.heldout_bytes + text.bytes) / info.heldout_bytes
        score, own = math.inf, self._own
        if isinstance(own, TrialOk):
            bits = own.val_bpb * own.val_bytes + own.texts[0].val_bpb * own.texts[0].val_bytes
            score = bits / (own.val_bytes + own.texts[0].val_bytes)
        seconds = self._seconds(self._steps) + (times - 1) * self._scoring_s
        return f"{times:.2g} times the held-out text", score, seconds

    @property
    def _steps(self) -> int:
        return self.plan.budget_steps(self.config)

    @property
    def _scoring_s(self) -> float:
        """Mean seconds to score the held-out text once."""
        return fmean([one.eval_s for one in self._short]) if self._short else 0.0

    def _seconds(self, steps: int) -> float:
        """Return the seconds to train this many steps and to score once. The step time is the mean
        of the short runs' medians."""
        step_s = fmean([one.step_ms for one in self._short]) / 1000 if self._short else 0.0
        return steps * step_s + self._scoring_s

    @property
    def _short(self) -> list[TrialOk]:
        """The runs of the campaign's own length that were scored, once each."""
        runs = (*self._of("horizon"), *self._of("cooldown"))
        return [one for one in runs if isinstance(one, TrialOk)]

    @property
    def _own(self) -> TrialOk | TrialFailed:
        """The run by the campaign's own proxy metric."""
        (own,) = self._of("own")
        return own

    def _at(self, place: int) -> float:
        return _at(self._own, place)

    def _of(self, kind: Kind) -> list[TrialOk | TrialFailed]:
        return [result for planned, result in self.results.items() if planned.kind == kind]

    def long_scores(self) -> list[float]:
        """Return the scores of the long runs, one per seed."""
        return [_score(one) for one in self._of("long")]


def conclude(plan: CalibrationPlan, runs: Sequence[ConfigRuns]) -> Calibrated | None:
    """Return the result of the calibration; None if the configs are too few or all alike."""
    known = [one for one in runs if one.complete]
    long = [one.long_score for one in known]
    if len(known) < FEWEST or len({score for score in long if math.isfinite(score)}) < FEWEST:
        return None
    by_config = [one.metrics() for one in known]
    names = [name for name in by_config[0] if all(name in one for one in by_config)]
    own_s = fmean(next(iter(one.values())).seconds for one in by_config)
    scored = {
        name: Scored(
            [one[name].score for one in by_config],
            fmean(one[name].seconds for one in by_config) / own_s,
        )
        for name in names
    }
    features = [list(column) for column in zip(*(one.features() for one in known), strict=True)]
    cost = fmean(one.features_s() for one in known) / own_s
    scored[FITTED] = Scored(fitted(features, long), cost)
    longer = [one.longer() for one in known]
    steps_curve = []
    for times in longer[0]:
        found = correlation_of([one[times] for one in longer], long)
        if found is not None:
            steps_curve.append((times, found))
    # How well one long run agrees with the mean of the others; None for one seed.
    long_runs = None
    by_seed = [one.long_scores() for one in known]
    if len(by_seed[0]) >= 2:
        long_runs = correlation_of([one[0] for one in by_seed], [fmean(one[1:]) for one in by_seed])
    settings = plan.campaign.settings
    return Calibrated(
        budget=settings.budget,
        long_steps=plan.long_steps,
        long_seeds=plan.long_seeds,
        n=len(known),
        nonfinite=sum(math.isinf(score) for score in long),
        left_out=len(runs) - len(known),
        best_n=len(best_of(long)),
        proxy_metrics=compared(scored, long),
        steps_curve=tuple(steps_curve),
        long_runs=long_runs,
    )


def _score(result: TrialOk | TrialFailed) -> float:
    return result.val_bpb if isinstance(result, TrialOk) else math.inf


def _at(result: TrialOk | TrialFailed, place: int) -> float:
    """Return the score at one of the run's checkpoints; the place after the last means its final
    score."""
    if isinstance(result, TrialFailed):
        return math.inf
    return result.checkpoints_bpb[place] if place < len(result.checkpoints_bpb) else result.val_bpb
