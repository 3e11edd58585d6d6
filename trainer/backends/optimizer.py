"""AdamW with clipping and a stop at the first non-finite step, decided on the device.

``torch.optim`` is left out on purpose: its first optimizer imports torch._dynamo, about a second
that every cold trial would pay, and its per-step bookkeeping costs as much as the update of a
million parameters. The kernel is the one that its ``AdamW(fused=True)`` calls; matrices of which a
GPU's products read a copy are updated by one of ours, which writes the copy too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from trainer.backends.kernels import operations
from trainer.backends.kernels.sizes import ADAM_EPS
from trainer.backends.weights import RoundedWeight
from trainer.spec import Config


class Optimizer(Protocol):
    """What the step loop asks of an optimizer."""

    def step(self, loss: Tensor, lr: float) -> Tensor:
        """Clip the gradients to the global norm, update, and clear them.

        Returns the norm before clipping, on the device. From the first ``loss`` or norm that is
        not finite on, nothing is updated any more, whatever the later ones are.
        """
        ...


@runtime_checkable
class BringsOptimizer(Protocol):
    """A model whose weights only an optimizer of its own can update."""

    def optimizer(self, config: Config) -> Optimizer:
        """The one to train it with, for its weights as they are now."""
        ...


def optimizer_of(model: nn.Module, config: Config) -> Optimizer:
    """What trains ``model`` as ``config`` says: its own optimizer where it brings one, else
    :class:`AdamW`, which writes the ``copies`` of parameters that the model has, if any."""
    if isinstance(model, BringsOptimizer):
        return model.optimizer(config)
    return AdamW(
        model.parameters(),
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
        copies=getattr(model, "copies", None),
        own_rates=_own_rates(model, config),
    )


class Rates(NamedTuple):
    """What a parameter is trained at, as multiples of what the others are."""

    lr: float
    eps: float


PLAIN = Rates(1.0, 1.0)


def block_rates(config: Config) -> Rates:
    """Of the blocks' matrices, under a parametrisation with a base.

    Maximal update: learning rate and epsilon × base / width (arXiv 2203.03466, table 8 and appendix
    B.3); CompleteP: epsilon × base / depth besides (arXiv 2505.01618, table 1).
    """
    return Rates(config.width_factor, config.width_factor * config.depth_factor)


@runtime_checkable
class HasBlocks(Protocol):
    """A model whose blocks' matrices can be told from its tables."""

    @property
    def block_matrices(self) -> list[nn.Parameter]:
        """Them."""
        ...


def _own_rates(model: nn.Module, config: Config) -> Mapping[nn.Parameter, Rates]:
    rates = block_rates(config)
    if rates == PLAIN:
        return {}
    assert isinstance(model, HasBlocks), "every backend's model under a parametrisation is"
    return dict.fromkeys(model.block_matrices, rates)


class AdamW:
    """Decoupled weight decay (Loshchilov & Hutter 2019) on matrices only: on every parameter of
    more than one dimension, embeddings included; norm gains never decay."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        betas: tuple[float, float],
        weight_decay: float,
        grad_clip: float,
        copies: Mapping[nn.Parameter, RoundedWeight] | None = None,
        own_rates: Mapping[nn.Parameter, Rates] | None = None,
    ) -> None:
        """
        :param copies: of some of the parameters, to be written along with them.
        :param own_rates: of matrices that are not trained at the learning rate and epsilon of all.
        """
        every = list(parameters)
        copies, own_rates = copies or {}, own_rates or {}
        self._betas = betas
        self._grad_clip = grad_clip
        matrices = [p for p in every if p.dim() > 1 and p not in copies]
        plain = [p for p in matrices if p not in own_rates]
        self._groups = [
            _Group(plain, weight_decay),
            _Group([p for p in every if p.dim() <= 1], 0.0),
        ]
        for rates in dict.fromkeys(own_rates.values()):
            theirs = [p for p in matrices if own_rates.get(p) == rates]
            self._groups.append(_Group(theirs, weight_decay, rates))
        self._copied = [copies[p] for p in every if p in copies]
        self._copied_group = _Group([weight.parameter for weight in self._copied], weight_decay)
        self._copied_rates = [own_rates.get(weight.parameter, PLAIN) for weight in self._copied]
        self._step = 0
        self._stopped = torch.zeros((), device=every[0].device)

    @torch.no_grad()
    def step(self, loss: Tensor, lr: float) -> Tensor:
        """See :class:`Optimizer`; nothing waits for a GPU."""
        copied = self._copied_group.take_gradients()
        gradients = [group.take_gradients() for group in self._groups]
        norms = torch._foreach_norm([*(g for group in gradients for g in group), *copied])
        grad_norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        # x - x is 0 for a finite x and NaN for any other.
        nonfinite = ((grad_norm - grad_norm) + (loss.detach() - loss.detach())).isnan()
        self._stopped = torch.maximum(self._stopped, nonfinite.float())
        for group, gradients_of_group in zip(self._groups, gradients, strict=True):
            if group.parameters:
                self._update(group, gradients_of_group, grad_norm, lr)
        self._step += 1
        if copied:
            self._update_copied(copied, grad_norm, lr)
        return grad_norm

    def _update(self, group: _Group, gradients: list[Tensor], grad_norm: Tensor, lr: float) -> None:
        torch._foreach_add_(group.steps, 1.0)
        # The kernel divides gradients by grad_scale and does nothing where found_inf is 1.
        torch._fused_adamw_(
            group.parameters,
            gradients,
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
            grad_scale=self._grad_scale(grad_norm),
            found_inf=self._stopped,
        )
        # torch does not count this as a change, and copies of parameters go by that count.
        torch.autograd.graph.increment_version(group.parameters)

    def _update_copied(self, gradients: list[Tensor], grad_norm: Tensor, lr: float) -> None:
        group, scale = self._copied_group, self._grad_scale(grad_norm)
        for weight, rates, gradient, first, second in zip(
            self._copied,
            self._copied_rates,
            gradients,
            group.first_moments,
            group.second_moments,
            strict=True,
        ):
            operations.adamw_(
                weight.parameter,
                gradient,
                first,
                second,
                weight.storage,
                scale,
                self._stopped,
                step=self._step,
                lr=lr * rates.lr,
                betas=self._betas,
                weight_decay=group.weight_decay,
                eps=ADAM_EPS * rates.eps,
            )
            torch.autograd.graph.increment_version(weight.parameter)
            weight.written()

    def _grad_scale(self, grad_norm: Tensor) -> Tensor:
        return (grad_norm / self._grad_clip).clamp(min=1.0)


class _Group:
    """Parameters that share a weight decay and rates, and the state of each."""

    def __init__(
        self, parameters: list[nn.Parameter], weight_decay: float, rates: Rates = PLAIN
    ) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.weight_decay = weight_decay
        self.rates = rates
        self.first_moments = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self.second_moments = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self.steps = [torch.zeros((), device=p.device) for p in parameters]

    def take_gradients(self) -> list[Tensor]:
        """The parameters' gradients, which they then no longer have."""
        gradients = []
        for p in self.parameters:
            if p.grad is None:
                raise RuntimeError(f"a parameter of shape {tuple(p.shape)} got no gradient")
            gradients.append(p.grad)
            p.grad = None
        return gradients
