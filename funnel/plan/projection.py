"""A winning proxy's recipe, carried to its target by the rules of :mod:`funnel.transfer`."""

from __future__ import annotations

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.target.architecture import TargetArchitecture
from funnel.target.shape import Shape
from funnel.transfer.carry import (
    DEFAULT_RULES,
    CarriedValue,
    Disagreement,
    RuleChoice,
    carry,
)
from funnel.transfer.support import LadderSupport
from funnel.transfer.width import WidthRule as LrRule
from trainer.spec import Config

__all__ = ["LrRule", "Projection", "project"]


class Projection(Frozen):
    """The target's recipe and where each of its values is from."""

    target: TargetArchitecture
    source: Config
    """The proxy's."""
    rules: RuleChoice
    """In force."""
    config: Config
    """The target's: its shape, and the carried hyperparameters; its ``lr`` is that of the matrices
    in the blocks, which hold most of the parameters."""
    base_lr: Positive
    """Rate for a launcher that divides by the width itself, if the rule is ``mup``."""
    base_width: PositiveInt
    """Width at which ``base_lr`` is the blocks' rate too."""
    warmup_fraction: NonNegative
    """Warmup as a share of the schedule, the proxy's and the target's."""
    steps: PositiveInt
    """The target's steps: its schedule's horizon."""
    tokens_per_step: PositiveInt
    """The target's tokens per step."""
    carried: tuple[CarriedValue, ...]
    """Every field of the target's config, in its order."""
    disagreements: tuple[Disagreement, ...]
    """Values on which the rules disagree, and which was used."""
    notes: tuple[str, ...]
    """Notes on rules that are used beyond their tested range."""

    @property
    def lr_rule(self) -> LrRule:
        """Rule of the width."""
        return self.rules.width

    @property
    def departures(self) -> tuple[str, ...]:
        """In words, what of the target's shape the proxy did not have: where there is anything,
        the recipe is carried further than it was tested."""
        return tuple(Shape.of(self.source).departures(Shape.of(self.target)))

    def slowed(self, factor: float) -> Projection:
        """The same run at ``factor`` times every rate: what goes on from its checkpoint. Its decay
        is the run's own, so that a step at the lower rate decays less too."""
        lr = self.config.lr * factor
        return self.model_copy(
            update={
                "source": self.source.model_copy(update={"lr": self.source.lr * factor}),
                "config": self.config.model_copy(update={"lr": lr}),
                "base_lr": self.base_lr * factor,
                "carried": tuple(
                    value.model_copy(
                        update={
                            "proxy": self.source.lr * factor,
                            "target": lr,
                            "rule": f"{factor:g} × the winner's: {value.rule}",
                        }
                    )
                    if value.name == "lr"
                    else value
                    for value in self.carried
                ),
            }
        )


def project(
    config: Config,
    target: TargetArchitecture,
    *,
    horizon_steps: int,
    lr_rule: LrRule | None = None,
    rules: RuleChoice = DEFAULT_RULES,
    batch_size: int | None = None,
    support: LadderSupport | None = None,
) -> Projection:
    """The recipe of ``config`` for the target.

    :param horizon_steps: over how many steps the proxy's learning rate would have decayed.
    :param lr_rule: of the width; None: as ``rules`` has it.
    :param batch_size: the target's sequences a step; None: by the batch's rule.
    :param support: what a ladder measured, which may choose among the rules.
    :raises TargetError: where the proxy's warm-up fills its whole schedule.
    """
    carried = carry(
        config,
        horizon_steps=horizon_steps,
        shape=target,
        tokens=target.tokens,
        tokens_per_step=batch_size and batch_size * target.seq_len,
        rules=rules.model_copy(update={"in_config": False, "width": lr_rule or rules.width}),
        support=support,
    )
    return Projection(
        target=target,
        source=config,
        rules=carried.rules,
        config=carried.config,
        base_lr=carried.base_lr,
        base_width=carried.base_width,
        warmup_fraction=carried.warmup_fraction,
        steps=carried.steps,
        tokens_per_step=carried.tokens_per_step,
        carried=carried.values,
        disagreements=carried.disagreements,
        notes=carried.notes,
    )
