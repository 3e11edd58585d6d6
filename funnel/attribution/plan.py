"""Which configs say what the winner's changes are worth, on which seeds, for how long.

The winner, the baseline, and the winner with one change taken back, for each change: the knobs of
the menu in which the two differ. A change that cannot be taken back alone, because what is left is
no config of the menu, is named with the reason; what it was worth is then in the remainder.

The seeds are the campaign's last: no short run and no long run that chose a finalist had them, so
what is measured is no luck of the choice. They are the same for every attribution of a campaign.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from agent.menu.proxy_menu import ProxyMenu
from agent.search.seed_blocks import seeds_of
from autoresearch.errors import CampaignError, SpecError
from autoresearch.values import Scalar
from trainer.spec import AnyConfig, Budget


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The winner with one knob at the baseline's value."""

    knob: str
    baseline: Scalar
    """The knob's value there, and in this config."""
    winner: Scalar
    config: AnyConfig | None
    """None: it cannot be taken back alone."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class AttributionPlan:
    """An attribution: its runs and their order."""

    winner: AnyConfig
    baseline: AnyConfig
    changes: tuple[TakenBack, ...]
    """In the menu's order; at least one."""
    steps: int
    """Of a run, and of its whole schedule."""
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls,
        menu: ProxyMenu,
        winner: AnyConfig,
        *,
        budget: Budget,
        steps: int,
        seeds: Sequence[int],
    ) -> AttributionPlan:
        """
        :param budget: of the campaign, which some constraints of the menu speak of.
        :raises CampaignError: where the winner is the baseline.
        """
        changes = tuple(_changes(menu, winner, budget))
        if not changes:
            raise CampaignError(
                "the best config is the baseline itself, so there is no change whose worth could "
                "be measured; go on with autoresearch loop"
            )
        return cls(winner, menu.baseline, changes, steps, tuple(seeds))

    @property
    def configs(self) -> tuple[AnyConfig, ...]:
        """Every config to run, each once."""
        without = (change.config for change in self.changes if change.config is not None)
        return tuple(dict.fromkeys((self.winner, self.baseline, *without)))

    def runs(self) -> Iterator[tuple[AnyConfig, int]]:
        """Every (config, seed), all configs on one seed before the next seed: stopped early, all
        have been compared on fewer seeds."""
        return ((config, seed) for seed in self.seeds for config in self.configs)

    def knob_of(self, config: AnyConfig) -> str | None:
        """The change that this config takes back; None for the winner and the baseline."""
        if config in (self.winner, self.baseline):
            return None
        return next(change.knob for change in self.changes if change.config == config)


def _changes(menu: ProxyMenu, winner: AnyConfig, budget: Budget) -> Iterator[TakenBack]:
    theirs, own = menu.knob_values(menu.baseline), menu.knob_values(winner)
    for knob, value in own.items():
        if value == theirs[knob]:
            continue
        config, why_not = None, ""
        try:
            config = menu.apply(winner, {knob: theirs[knob]})
            why_not = menu.why_broken(config, budget) or ""
        except SpecError as error:
            why_not = str(error)
        yield TakenBack(knob, theirs[knob], value, None if why_not else config, why_not)


def last_seeds(campaign_seed: int, used: Set[int], count: int) -> list[int]:
    """The campaign's seeds for attributions: the last ``count`` that no other run used.

    :raises CampaignError: where it has fewer left.
    """
    block = reversed(seeds_of(campaign_seed, "long runs"))
    fresh = [seed for seed in block if seed not in used][:count]
    if len(fresh) < count:
        raise CampaignError(
            f"a campaign has {len(fresh)} fresh seeds left and {count} were asked for; ask for "
            "fewer with --seeds"
        )
    return fresh
