"""Carry a winning proxy's recipe to its target by the rules of :mod:`funnel.transfer`.

Its functions go into a file to patch Megatron-LM with, since no flag carries code.
"""

from __future__ import annotations

from funnel.targets.architecture import TargetArchitecture
from funnel.targets.shape import Shape
from funnel.transfer.bounds import Bounded, out_of_bounds
from funnel.transfer.carry import Carried, carry
from trainer.code import slot_of
from trainer.schema import Config

CODE_FILE = "code_patch.py"

_HEAD = '''\
"""Functions of the winning config that no flag of Megatron-LM can carry.

Each stands below as torch reference. Put its counterpart into Megatron-LM, and compare the two on
the tensors that the comment describes: ``same(NAME, counterpart, *arguments)`` raises if they
differ. Learned parameters are keyword-only arguments with their first value; ``: D`` is one per
column.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def same(name, counterpart, *arguments, **learned):
    """Compare a counterpart in Megatron-LM with the reference of that name."""
    torch.testing.assert_close(
        counterpart(*arguments, **learned), globals()[name](*arguments, **learned)
    )


'''


def code_patch(config: Config) -> str:
    """Return a module with the functions that a config sets, each as a torch reference."""
    values = {
        "beta1": config.beta1,
        "beta2": config.beta2,
        "min_ratio": config.lr_min_ratio,
        "decay_share": config.decay_share,
        "std": 0.02 * config.init_scale,
    }
    used = {name for key in config.code for name in slot_of(key).reads}
    parts = ["".join(f"{name} = {values[name]!r}\n" for name in values if name in used)]
    for key, source in config.code.items():
        slot = slot_of(key)
        built_in = config.function(key, "").replace("\n", "\n#     ")
        about = f"# {key}: {slot.doc}\n# In place of\n#     {built_in}\n"
        parts.append(f"{about}{source}\n")
    return _HEAD + "\n\n".join(filter(None, parts))


class Projection(Carried):
    """The target's recipe and the source of each of its values.

    The config's ``lr`` is the rate of the matrices in the blocks, which hold most parameters.
    """

    target: TargetArchitecture
    source: Config
    """The proxy's config."""
    bounded: tuple[Bounded, ...] = ()
    """Values that were carried beyond published practice, and what is taken instead."""

    @property
    def departures(self) -> tuple[str, ...]:
        """Differences between the proxy's shape and the target's, in words.

        If there are any, the recipe is carried further than it was tested.
        """
        return tuple(Shape.of(self.source).departures(Shape.of(self.target)))

    def slowed(self, factor: float) -> Projection:
        """Return the same run at ``factor`` times every rate, to continue from its checkpoint.

        The weight decay does not change, so a step at a lower rate also decays less.
        """
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
    batch_size: int | None = None,
) -> Projection:
    """Carry the recipe of ``config`` to the target.

    A recipe with Muon is carried by ``sqrt_width`` whatever the target's rule. It keeps the largest
    singular value of Muon's updates (arXiv 2310.17813), and Megatron-LM's maximal-update flags
    leave Muon's matrices out.

    :param horizon_steps: steps over which the proxy's learning rate would have decayed.
    :param batch_size: the target's sequences per step; None: chosen by the batch's rule.
    :raises TargetError: if the proxy's warm-up fills its whole schedule.
    """
    carried = carry(
        config,
        horizon_steps=horizon_steps,
        shape=target,
        tokens=target.tokens,
        tokens_per_step=batch_size and batch_size * target.seq_len,
        lr_rule="sqrt_width" if config.optimizer == "muon" else target.lr_rule,
    )
    bounded = {one.name: one for one in out_of_bounds(carried)}
    taken = {name: type(getattr(carried.config, name))(one.taken) for name, one in bounded.items()}
    warmup_fraction = carried.warmup_fraction
    if "lr_warmup" in taken:
        warmup_fraction = taken["lr_warmup"] / carried.steps
    values = dict(carried) | {
        "config": carried.config.model_copy(update=taken),
        "warmup_fraction": warmup_fraction,
        "carried": tuple(
            one.model_copy(update={"target": taken[one.name], "rule": bounded[one.name].words})
            if one.name in taken
            else one
            for one in carried.carried
        ),
    }
    return Projection(target=target, source=config, bounded=tuple(bounded.values()), **values)
