"""Knobs of a campaign: each config as a point, and the importance of each knob.

The importance is PED-ANOVA (Watanabe, Bansal and Hutter, IJCAI 2023), Optuna's own. It measures how
much a knob's values among the best configs differ from its values among all configs. It replaces a
forest's fANOVA here because it compares with the sampled values, and a search samples unevenly.

Every method gives some knob the greatest share, even if none matters. So the importance is also
computed on scores shuffled among the configs. A knob stands out if its importance exceeds that of
every one of SHUFFLES shuffles, which happens by chance to a given knob once in ``SHUFFLES + 1``
times. This is the Monte Carlo test of Barnard (1963), as Altmann et al. (2010) use it for
importances.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trainer.spec import AnyConfig
from trajectory.evidence import ConfigEvidence

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study


@dataclass(frozen=True, slots=True)
class ReportedKnob:
    """A knob of the campaign, or any field in which an imported campaign's configs differ."""

    name: str
    domain: Domain
    default: Scalar | None
    """The menu's default, or the value of an imported campaign's baseline if it is known."""
    read: Callable[[AnyConfig], Scalar] | None = None
    """Reads the knob's value from a config; None if it is a field of the config."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One trained config, counted once however often it was trained."""

    values: Mapping[str, Scalar]
    """Values by knob."""
    mean: float | None
    """Mean score of its runs; None if none was measured."""


def samples(entries: Iterable[ConfigEvidence], knobs: Sequence[ReportedKnob]) -> list[Sample]:
    """Return a sample for each config that was trained."""
    return [
        Sample(knob_values(entry.config, knobs), entry.mean if entry.n else None)
        for entry in entries
        if entry.n or entry.failures
    ]


def knob_values(config: AnyConfig, knobs: Sequence[ReportedKnob]) -> dict[str, Scalar]:
    """Return the config's values of these knobs, with the menu's default for a field that is
    None."""
    found: dict[str, Scalar] = {}
    for knob in knobs:
        value: Scalar | None = config.value(knob.name) if knob.read is None else knob.read(config)
        if value is None:
            value = knob.default
        if value is not None:
            found[knob.name] = value
    return found


def places(samples: Iterable[Sample], knob: ReportedKnob) -> list[int | None]:
    """Return the cell of each config's value of a knob; None for a value outside the domain."""
    known: dict[tuple[type, Scalar | None], int | None] = {}
    found = []
    for sample in samples:
        value = sample.values.get(knob.name)
        key = value.__class__, value  # True equals 1, and is another value
        if key not in known:
            known[key] = knob.domain.place(value)
        found.append(known[key])
    return found


METHOD = "PED-ANOVA"
MIN_CONFIGS = 20
"""Fewest measured configs for an estimate."""
MAX_CONFIGS = 500
"""Most configs used; of more, this many are taken, evenly spaced over the campaign."""
MIN_BEST = 5
"""Fewest configs to count as the best (Optuna's advice)."""
BEST_SHARE = 0.1
SHUFFLES = 19


@dataclass(frozen=True, slots=True)
class KnobShare:
    """One knob's share of all importance."""

    name: str
    share: float
    by_chance: float
    """The greatest share that it got with shuffled scores."""

    @property
    def stands_out(self) -> bool:
        return self.share > self.by_chance


@dataclass(frozen=True, slots=True)
class Importances:
    """Importance of every knob that varied, the greatest first. Empty if there were too few
    configs, or fewer than two such knobs."""

    knobs: tuple[KnobShare, ...]
    n: int
    """Number of measured configs used."""
    best: int
    """Number of these that count as the best."""


def importances(
    samples: Sequence[Sample], knobs: Sequence[ReportedKnob], seed: int = 0
) -> Importances:
    """Return each knob's importance for reaching the best tenth of the measured configs, or the
    best five if those are more.

    :param seed: seed of the shuffles.
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
    """Return whether every config has a value of the knob, and not all have the same."""
    seen = {sample.values.get(knob.name) for sample in samples}
    return None not in seen and len(seen) > 1


def _study(samples: Sequence[Sample], knobs: Sequence[ReportedKnob]) -> Study:
    """Return the configs as an Optuna study, in their order."""
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
    """Return the share of each knob if the configs had these scores."""
    from optuna.importance import (  # noqa: PLC0415 (slow to load)
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    with warnings.catch_warnings():
        # Optuna assumes that lower is better, which objectives are.
        warnings.filterwarnings("ignore", ".*to achieve low `target` values")
        return get_param_importances(
            study,
            evaluator=PedAnovaImportanceEvaluator(target_quantile=quantile),
            target=lambda trial: scores[trial.number],
        )


def _distribution(knob: ReportedKnob, samples: Sequence[Sample]) -> BaseDistribution:
    """Return the knob's domain, or all values seen if some lie outside it (in an imported
    campaign)."""
    from optuna.distributions import CategoricalDistribution  # noqa: PLC0415 (slow to load)

    seen = {sample.values[knob.name] for sample in samples}
    if any(knob.domain.place(value) is None for value in seen):
        return CategoricalDistribution(sorted(seen, key=str))
    return knob.domain.distribution()
