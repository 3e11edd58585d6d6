"""Stop futile trials after a third of the budget, by the reference's own learning curves.

At a third of the budget, the reference's training loss, averaged over a short window, is known on
several seeds. A candidate is stopped if its loss there exceeds the reference's mean by
``MARGIN_SDS`` standard deviations and by at least ``MARGIN_NATS``. The margin is wide on purpose.
After a third of 60 steps, learning rates and warm-ups that end level may still be tenths of a nat
apart. A wrongly pruned idea is lost, while a spared one costs two thirds of a trial.
"""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from agent.search.campaign import Campaign
from trainer.spec import AnyConfig, Budget, CurvePoint, PruneRule

FRACTION = 1 / 3
MARGIN_SDS = 8.0
MARGIN_NATS = 0.3


def prune_rule(
    reference_curves: Sequence[Sequence[CurvePoint]],
    reference: AnyConfig,
    candidate: AnyConfig,
    budget: Budget,
) -> PruneRule | None:
    """Return the rule for a candidate, or None if no fair rule exists.

    A fair rule needs two of the reference's curves, and a budget in steps or tokens that is long
    enough to have a third.

    :param reference_curves: one per seed, in ascending steps.
    """
    reference_steps = budget.steps(reference.tokens_per_step)
    candidate_steps = budget.steps(candidate.tokens_per_step)
    if reference_steps is None or candidate_steps is None:
        return None
    at_step, window = _place(candidate_steps)
    reference_at, reference_window = _place(reference_steps)
    if min(at_step, reference_at) < 3:
        return None
    losses = []
    for curve in reference_curves:
        seen = [p.loss for p in curve if reference_at - reference_window < p.step <= reference_at]
        if seen:
            losses.append(fmean(seen))
    if len(losses) < 2:
        return None
    margin = max(MARGIN_SDS * stdev(losses), MARGIN_NATS)
    return PruneRule(at_step=at_step, window=window, max_loss=fmean(losses) + margin)


def _place(steps: int) -> tuple[int, int]:
    """Return the step to check, and the number of steps before it to average."""
    at_step = round(steps * FRACTION)
    return at_step, max(1, min(at_step, steps // 12))


def race_prune_rule(
    curve: Callable[[str], list[CurvePoint]],
    campaign: Campaign,
    reference: AnyConfig,
    candidate: AnyConfig | None,
) -> PruneRule | None:
    """Return the rule that stops trials of the candidate early, from the reference's present
    curves; None if there is none.

    :param curve: returns a trial's learning curve.
    """
    if candidate is None or not (campaign.settings.prune and campaign.prunes):
        return None
    trials = campaign.evidence.configs[reference.config_hash].trial_ids.values()
    curves = [curve(trial) for trial in trials]
    return prune_rule(curves, reference, candidate, campaign.settings.budget)
