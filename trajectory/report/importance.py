"""Which knobs decide, and whether chance alone could look the same.

The method is PED-ANOVA (Watanabe, Bansal and Hutter, IJCAI 2023), Optuna's own: how much the values
of a knob among the best configs differ from its values among all of them. It is used here, rather
than a forest's fANOVA, because it compares with what was sampled, and a search samples unevenly.

Every method gives some knob the greatest share, also where none matters. So the same is computed on
scores shuffled among the configs: a knob stands out where its importance exceeds that of every one
of SHUFFLES shuffles, which chance does to a given knob once in ``SHUFFLES + 1`` times (the Monte
Carlo test of Barnard 1963, as Altmann et al. 2010 use it for importances).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trajectory.report.reading.samples import ReportedKnob, Sample

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

METHOD = "PED-ANOVA"
MIN_CONFIGS = 20
"""With fewer, nothing is estimated."""
MAX_CONFIGS = 500
"""Where there are more, as many of them are taken, evenly spread over the campaign."""
MIN_BEST = 5
"""Configs that must be among the best (Optuna's advice)."""
BEST_SHARE = 0.1
SHUFFLES = 19


@dataclass(frozen=True, slots=True)
class KnobShare:
    """One knob's share of all importance."""

    name: str
    share: float
    by_chance: float
    """The greatest share it got with shuffled scores."""

    @property
    def stands_out(self) -> bool:
        return self.share > self.by_chance


@dataclass(frozen=True, slots=True)
class Importances:
    """The importance of every knob that varied, the greatest first; none where there were too few
    configs, or fewer than two knobs to share it."""

    knobs: tuple[KnobShare, ...]
    n: int
    """Measured configs it is from."""
    best: int
    """How many of these, the best ones, the rest is compared with."""


def importances(
    samples: Sequence[Sample], knobs: Sequence[ReportedKnob], seed: int = 0
) -> Importances:
    """For reaching the best tenth of what was measured, or the best five.

    :param seed: of the shuffles.
    """
    measured = [sample for sample in samples if sample.mean is not None]
    if len(measured) > MAX_CONFIGS:
        measured = [measured[i * len(measured) // MAX_CONFIGS] for i in range(MAX_CONFIGS)]
    if len(measured) < MIN_CONFIGS:
        return Importances((), len(measured), 0)
    varied = [knob for knob in knobs if _varies(knob, measured)]
    quantile = max(BEST_SHARE, MIN_BEST / len(measured))
    if len(varied) < 2:
        return Importances((), len(measured), 0)
    study = _study(measured, varied)
    scores = [sample.mean or 0.0 for sample in measured]
    real = _shares(study, scores, quantile)
    rng = random.Random(seed)
    by_chance = dict.fromkeys(real, 0.0)
    for _ in range(SHUFFLES):
        rng.shuffle(scores)
        for name, share in _shares(study, scores, quantile).items():
            by_chance[name] = max(by_chance[name], share)
    ranked = sorted(
        (KnobShare(name, share, by_chance[name]) for name, share in real.items()),
        key=lambda knob: (-round(knob.share, 9), knob.name),
    )
    return Importances(tuple(ranked), len(measured), round(quantile * len(measured)))


def _varies(knob: ReportedKnob, samples: Sequence[Sample]) -> bool:
    """Every config has a value of it, and not all the same."""
    seen = {sample.values.get(knob.name) for sample in samples}
    return None not in seen and len(seen) > 1


def _study(samples: Sequence[Sample], knobs: Sequence[ReportedKnob]) -> Study:
    """The configs as Optuna sees them, in their order."""
    import optuna  # noqa: PLC0415 (slow to load)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    distributions = {knob.name: _distribution(knob, samples) for knob in knobs}
    study.add_trials(
        [
            optuna.trial.create_trial(
                params={knob.name: sample.values[knob.name] for knob in knobs},
                distributions=distributions,
                value=sample.mean,
            )
            for sample in samples
        ]
    )
    return study


def _shares(study: Study, scores: Sequence[float], quantile: float) -> dict[str, float]:
    """The share of each knob, had the configs these scores."""
    from optuna.importance import (  # noqa: PLC0415 (slow to load)
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*to achieve low `target` values")  # which it should
        return get_param_importances(
            study,
            evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile),
            target=lambda trial: scores[trial.number],
        )


def _distribution(knob: ReportedKnob, samples: Sequence[Sample]) -> BaseDistribution:
    """The knob's domain, or all values seen where some lie outside of it (another tool's)."""
    from optuna.distributions import CategoricalDistribution  # noqa: PLC0415 (slow to load)

    seen = {sample.values[knob.name] for sample in samples}
    if any(knob.domain.place(value) is None for value in seen):
        return CategoricalDistribution(sorted(seen, key=str))
    return knob.domain.distribution()
