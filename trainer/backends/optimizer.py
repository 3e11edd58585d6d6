"""AdamW and Muon with clipping, and a stop at the first non-finite step, decided on the device.

This does not use ``torch.optim``. Its first optimizer imports torch._dynamo, which takes each cold
trial about a second. Its per-step bookkeeping costs as much as the update of a million parameters.
The kernels are those that its ``AdamW(fused=True)`` calls: a launch updates many parameters. If a
GPU's products read copies of matrices, one more writes them all. That moves 6 bytes a parameter
more than a kernel of our own, which wrote a copy along, but took a launch for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from trainer.backends.coded import CodeUpdate
from trainer.backends.kernels import ADAM_EPS
from trainer.backends.muon import Muon, Piece
from trainer.backends.weights import RoundedWeight, write_copies
from trainer.schema import Config


class Optimizer(Protocol):
    """The interface of an optimizer for the step loop."""

    def step(self, loss: Tensor, lr: float) -> Tensor:
        """Clip the gradients to the global norm, update, and clear them.

        Return the norm before clipping, on the device. After the first ``loss`` or norm that is not
        finite, nothing is updated any more, even if later ones are finite.
        """


class Rule(Protocol):
    """The update of parameters that AdamW leaves alone."""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that it updates."""

    def step(self, scale: Tensor, stopped: Tensor, lr: float, step: int) -> None:
        """Divide the gradients by ``scale``, update the parameters, and clear their gradients.

        Do nothing to the parameters where ``stopped`` is 1. ``step`` is 1 for the first.
        """


@runtime_checkable
class BringsOptimizer(Protocol):
    """A model whose weights only its own optimizer can update."""

    def optimizer(self, config: Config) -> Optimizer:
        """Return the model's optimizer, for its current weights."""


def optimizer_of(model: nn.Module, config: Config) -> Optimizer:
    """Return the optimizer of ``model``: its own if it brings one, else :class:`AdamW`.

    The latter also writes the model's ``copies`` of parameters, trains its ``block_matrices`` at
    their own rates, and leaves parameters to Muon and to the config's own functions.
    """
    if isinstance(model, BringsOptimizer):
        return model.optimizer(config)
    rates, inner = block_rates(config), set(getattr(model, "block_matrices", ()))
    own_rates = {} if rates == PLAIN else dict.fromkeys(inner, rates)
    rules: list[Rule] = []
    if config.optimizer == "muon":
        pieces: list[Piece] = getattr(model, "muon_pieces", [])
        ratio = config.muon_lr_ratio * muon_width_rate(config)
        rules.append(Muon(pieces, lr_ratio=ratio, weight_decay=config.weight_decay))
    for name in ("update", "update_rest"):
        if f"code.{name}" in config.code:
            targets = [p for p in model.parameters() if (p in inner) == (name == "update")]
            pairs = [(p, own_rates.get(p, PLAIN).lr) for p in targets]
            rules.append(CodeUpdate(config, name, pairs))
    return AdamW(
        model.parameters(),
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
        copies=getattr(model, "copies", None),
        own_rates=own_rates,
        rules=rules,
    )


class RateMultiples(NamedTuple):
    """A parameter's learning rate and epsilon, as multiples of those of other parameters."""

    lr: float
    eps: float


PLAIN = RateMultiples(1.0, 1.0)


def block_rates(config: Config) -> RateMultiples:
    """Return the rates of the blocks' matrices, under a parametrization with a base.

    Maximal update: learning rate and epsilon × base / width (arXiv 2203.03466, table 8 and appendix
    B.3). CompleteP: also epsilon × base / depth (arXiv 2505.01618, table 1).
    """
    return RateMultiples(config.width_factor, config.width_factor * config.depth_factor)


def muon_width_rate(config: Config) -> float:
    """Return the factor of Muon's learning rate under the maximal-update parametrization.

    The largest singular value of an update must not depend on the width (Yang et al. 2023, arXiv
    2310.17813). Here it is the learning rate times 0.2 × sqrt(width).
    """
    return math.sqrt(config.width_factor)


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019), on matrices only.

    Those are all parameters of more than one dimension, with embeddings; norm gains never decay.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
        copies: Mapping[nn.Parameter, RoundedWeight] | None = None,
        own_rates: Mapping[nn.Parameter, RateMultiples] | None = None,
        rules: Sequence[Rule] = (),
    ) -> None:
        """
        :param copies: copies of some of the parameters, which each update writes too.
        :param own_rates: rates of matrices that differ from the common learning rate and epsilon.
        :param rules: updates of the parameters that Adam leaves to them.
        """
        self._rules = rules
        self._ruled = [parameter for rule in rules for parameter in rule.parameters]
        all_parameters, ruled = list(parameters), set(self._ruled)
        every = [p for p in all_parameters if p not in ruled]
        own_rates = own_rates or {}
        self._betas = betas
        self._grad_clip = grad_clip
        matrices = [p for p in every if p.dim() > 1]
        self._groups = [
            _Group([p for p in matrices if p not in own_rates], weight_decay),
            _Group([p for p in every if p.dim() <= 1], 0.0),
        ]
        for rates in dict.fromkeys(own_rates.values()):
            theirs = [p for p in matrices if own_rates.get(p) == rates]
            self._groups.append(_Group(theirs, weight_decay, rates))
        self._copies = list((copies or {}).values())
        self._step = 0
        self._stopped = torch.zeros((), device=all_parameters[0].device)

    def set_step(self, step: int) -> None:
        """Have the rules believe that the next step has this number."""
        self._step = step - 1

    @torch.no_grad()
    def step(self, loss: Tensor, lr: float) -> Tensor:
        """See :class:`Optimizer`; this never waits for a GPU."""
        gradients = [group.take_gradients() for group in self._groups]
        ruled = [gradient for p in self._ruled if (gradient := p.grad) is not None]
        norms = torch._foreach_norm([*(g for group in gradients for g in group), *ruled])
        grad_norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        # x - x is 0 for a finite x and NaN for any other.
        nonfinite = ((grad_norm - grad_norm) + (loss.detach() - loss.detach())).isnan()
        self._stopped = torch.maximum(self._stopped, nonfinite.float())
        scale = (grad_norm / self._grad_clip).clamp(min=1.0)
        for group, gradients_of_group in zip(self._groups, gradients, strict=True):
            if not group.parameters:
                continue
            torch._foreach_add_(group.steps, 1.0)
            # The kernel divides gradients by grad_scale and does nothing if found_inf is 1.
            torch._fused_adamw_(
                group.parameters,
                gradients_of_group,
                group.first_moments,
                group.second_moments,
                [],
                group.steps,
                lr=lr * group.rates.lr,
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=group.weight_decay,
                eps=ADAM_EPS * group.rates.eps,
                amsgrad=False,
                maximize=False,
                grad_scale=scale,
                found_inf=self._stopped,
            )
            # torch does not count this as a change, but copies of parameters depend on that count.
            torch.autograd.graph.increment_version(group.parameters)
        self._step += 1
        for rule in self._rules:
            rule.step(scale, self._stopped, lr, self._step)
        write_copies(self._copies)
        return grad_norm


class _Group:
    """Parameters that share a weight decay and rates, and the state of each."""

    def __init__(
        self, parameters: list[nn.Parameter], weight_decay: float, rates: RateMultiples = PLAIN
    ) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.weight_decay = weight_decay
        self.rates = rates
        self.first_moments = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self.second_moments = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self.steps = [torch.zeros((), device=p.device) for p in parameters]

    def take_gradients(self) -> list[Tensor]:
        """Return the parameters' gradients and remove them from the parameters."""
        gradients = []
        for p in self.parameters:
            if p.grad is None:
                raise RuntimeError(f"a parameter of shape {tuple(p.shape)} got no gradient")
            gradients.append(p.grad)
            p.grad = None
        return gradients
