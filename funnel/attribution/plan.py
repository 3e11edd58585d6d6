"""Plan the configs that measure the worth of the winner's changes.

They are the winner, the baseline, and for each change the winner without it. A change is a knob of
the menu in which the two differ. A change that cannot be undone alone, because the rest is no
config of the menu, is listed with the reason; its worth is then part of the remainder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.menu.proxy_menu import ProxyMenu
from autoresearch.errors import CampaignError, SpecError
from autoresearch.values import Scalar
from trainer.spec import AnyConfig, Budget


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The winner with one knob at the baseline's value."""

    knob: str
    baseline: Scalar
    """The knob's value in the baseline, and in this config."""
    winner: Scalar
    config: AnyConfig | None
    """None if the change cannot be undone alone."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class AttributionPlan:
    """An attribution's configs, seeds and length."""

    winner: AnyConfig
    baseline: AnyConfig
    changes: tuple[TakenBack, ...]
    """Changes in the menu's order; at least one."""
    steps: int
    """Steps of a run, and of its whole schedule."""
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
        :param budget: the campaign's budget, which some constraints of the menu use.
        :raises CampaignError: if the winner is the baseline.
        """
        changes = tuple(_changes(menu, winner, budget))
        if not changes:
            raise CampaignError(
                "the best config is the baseline itself, so there is no change whose worth could "
                "be measured; run autoresearch loop first"
            )
        return cls(winner, menu.baseline, changes, steps, tuple(seeds))

    @property
    def configs(self) -> tuple[AnyConfig, ...]:
        """Every config to run, each once."""
        without = (change.config for change in self.changes if change.config is not None)
        return tuple(dict.fromkeys((self.winner, self.baseline, *without)))

    def knob_of(self, config: AnyConfig) -> str | None:
        """Return the knob that this config undoes; None for the winner and the baseline."""
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
