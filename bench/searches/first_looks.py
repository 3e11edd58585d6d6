"""What a first look at a third of a run is worth, on real trials.

Every config of the table that was trained on two seeds is held, as a candidate, against references:
the baseline, and configs of each level up to the best. Who would be stopped at 20 of 60 steps by
the product's own rule, at its margins and at others; and how many of the stopped would have ended
better than the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import fmean

from agent.search.pruning import prune_rule
from bench.figure import Figure
from bench.simulator.cpu_tiny import cpu_tiny
from bench.simulator.runs import KnownRun, RunTable
from trainer.spec import Config, CurvePoint, PruneRule

MARGINS = ((8.0, 0.3), (8.0, 0.1), (4.0, 0.2), (4.0, 0.1), (2.0, 0.05), (0.0, 0.0))
"""Standard deviations of the reference's loss, and nats: the first are the product's."""
SHARES = (0.0, 0.05, 0.2)
"""Of the ranking, from the best: where references are taken, besides the baseline."""


def run(journal: Path) -> list[Figure]:
    """Of each margin, by reference: what is stopped, and what of it was better."""
    table = cpu_tiny(journal)
    by_config: dict[str, list[KnownRun]] = {}
    for one in table.runs:
        by_config.setdefault(one.config.config_hash, []).append(one)
    ranked = sorted(table.means, key=lambda key: table.means[key])
    replicated = [key for key in ranked if len(by_config[key]) > 1]
    chosen = {
        f"the reference at {share:.0%} of the ranking": replicated[int(share * len(replicated))]
        for share in SHARES
    }
    chosen["the baseline"] = table.menu.baseline.config_hash
    return [
        figure
        for name, reference in chosen.items()
        if reference in table.means
        for figure in _against(table, by_config, name, reference)
    ]


def _against(
    table: RunTable, by_config: dict[str, list[KnownRun]], name: str, reference: str
) -> list[Figure]:
    curves = [_points(one.config, one.losses) for one in by_config[reference]]
    others = [key for key in by_config if key != reference and by_config[key][0].losses]
    figures = []
    for sds, nats in MARGINS:
        rules = {
            key: prune_rule(
                curves,
                table.configs[reference],
                table.configs[key],
                table.menu.campaign.budget,
                margin_sds=sds,
                margin_nats=nats,
            )
            for key in others
        }
        stopped = {key for key in others if _stops(rules[key], by_config[key][0].losses)}
        better = [key for key in others if table.means.get(key, inf) < table.means[reference]]
        lost = len(stopped.intersection(better))
        figures.append(
            Figure(
                f"{name}: stopped at {sds:g} sd and {nats:g} nats",
                100 * len(stopped) / len(others),
                "%",
                note=f"of {len(others)} candidates; {lost} of the {len(better)} that end better "
                "than it are among them",
            )
        )
    return figures


def _stops(rule: PruneRule | None, losses: Sequence[float]) -> bool:
    if rule is None or len(losses) < rule.at_step:
        return False
    return fmean(losses[rule.at_step - rule.window : rule.at_step]) > rule.max_loss


def _points(config: Config, losses: Sequence[float]) -> list[CurvePoint]:
    return [
        CurvePoint(
            step=step,
            tokens=step * config.tokens_per_step,
            loss=loss,
            lr=config.lr,
            grad_norm=1.0,
            elapsed_s=0.0,
        )
        for step, loss in enumerate(losses, 1)
    ]
