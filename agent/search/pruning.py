"""Stop futile trials after a third of the budget, by the reference's own learning curves.

At a third of the budget, the reference's training loss, averaged over a short window, is known on
several seeds. A candidate is stopped if its loss there exceeds the reference's mean by
``MARGIN_SDS`` standard deviations and by at least ``MARGIN_NATS``. The margin is wide on purpose.
After a third of 60 steps, learning rates and warm-ups that end level may still be tenths of a nat
apart. A wrongly pruned idea is lost, while a spared one costs two thirds of a trial.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

from agent.search.campaign import Campaign
from trainer.spec import AnyConfig, Budget, CurvePoint, PruneRule

FRACTION = 1 / 3
MARGIN_SDS = 8.0
MARGIN_NATS = 0.3


def prune_rule(
    reference_curves: Iterable[Sequence[CurvePoint]],
    reference: AnyConfig,
    candidate: AnyConfig,
    budget: Budget,
) -> PruneRule | None:
    """Return the rule for a candidate, or None if no fair rule exists.

    A fair rule needs two of the reference's curves, and a budget in steps or tokens that is long
    enough to have a third.

    :param reference_curves: one per seed, in ascending steps.
    """
    places = []
    for config in (reference, candidate):
        steps = budget.steps(config.tokens_per_step)
        if steps is None or round(steps * FRACTION) < 3:
            return None
        at_step = round(steps * FRACTION)
        places.append((at_step, max(1, min(at_step, steps // 12))))
    (there, before), (at_step, window) = places
    windows = (
        [point.loss for point in curve if there - before < point.step <= there]
        for curve in reference_curves
    )
    losses = [fmean(each) for each in windows if each]
    if len(losses) < 2:
        return None
    margin = max(MARGIN_SDS * stdev(losses), MARGIN_NATS)
    return PruneRule(at_step=at_step, window=window, max_loss=fmean(losses) + margin)


def race_prune_rule(
    campaign: Campaign,
    reference: AnyConfig,
    candidate: AnyConfig | None,
    curve: Callable[[str], list[CurvePoint]],
) -> PruneRule | None:
    """Return the rule that stops trials of the candidate early, from the reference's present
    curves, which ``curve`` reads; None if there is none."""
    settings = campaign.settings
    if candidate is None or not (settings.prune and campaign.prunes):
        return None
    trials = campaign.evidence.configs[reference.config_hash].trial_ids.values()
    return prune_rule(map(curve, trials), reference, candidate, settings.budget)
