"""Check how far the configs of any menu keep the shape of a target."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from agent.menu.files import ProxyMenu
from autoresearch.errors import SpecError
from funnel.target.architecture import TargetArchitecture
from funnel.target.shape import Shape
from trainer.spec import gpt


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """Differences between a menu's shapes and the target's."""

    at_defaults: tuple[str, ...]
    """Differences between the shape of the menu's baseline and the target's, in words."""
    departing_share: float
    """Share of trainable random configs whose shape differs from the target's."""

    @classmethod
    def of(cls, menu: ProxyMenu, target: TargetArchitecture, *, draws: int = 500) -> ShapeCheck:
        """Check the menu's baseline and random configs, which are the same on every call.

        :param draws: number of random configs.
        """
        wanted = Shape.of(target)
        rng = Random(0)
        departing = trainable = 0
        for _ in range(draws):
            changes = {name: domain.draw(rng) for name, domain in menu.domains.items()}
            try:
                config = gpt(menu.apply(menu.baseline, changes))
            except SpecError:
                continue
            trainable += 1
            departing += any(Shape.of(config).departures(wanted))
        return cls(
            at_defaults=tuple(Shape.of(gpt(menu.baseline)).departures(wanted)),
            departing_share=departing / trainable if trainable else 1.0,
        )

    def warnings(self, name: str) -> list[str]:
        """Return one sentence per difference of the baseline, and one about random configs.

        :param name: the target's name.
        """
        said = [f"the defaults leave the shape of {name}: {clause}" for clause in self.at_defaults]
        if self.departing_share:
            said.append(
                f"{self.departing_share:.1%} of random configs leave the shape of {name}; see: "
                f"autoresearch menu from-target {name} --keep-shape"
            )
        return said
