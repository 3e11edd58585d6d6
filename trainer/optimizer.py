"""AdamW with clipping and a stop at the first non-finite step, decided on the device.

``torch.optim`` is left out on purpose: its first optimizer imports torch._dynamo, about a second
that every cold trial would pay, and its per-step bookkeeping costs as much as the update of a
million parameters. The kernel is the one that its ``AdamW(fused=True)`` calls.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

EPS = 1e-8


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
    ) -> None:
        every = list(parameters)
        self._betas = betas
        self._grad_clip = grad_clip
        self._groups = [
            _Group([p for p in every if p.dim() > 1], weight_decay),
            _Group([p for p in every if p.dim() <= 1], 0.0),
        ]
        self._stopped = torch.zeros((), device=every[0].device)

    @torch.no_grad()
    def step(self, loss: Tensor, lr: float) -> Tensor:
        """Clip the gradients to the global norm, update, and clear them; nothing waits for a GPU.

        Returns the norm before clipping, on the device. From the first ``loss`` or norm that is
        not finite on, nothing is updated any more, whatever the later ones are.
        """
        gradients = [group.take_gradients() for group in self._groups]
        norms = torch._foreach_norm([g for group in gradients for g in group])
        grad_norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        # x - x is 0 for a finite x and NaN for any other.
        nonfinite = ((grad_norm - grad_norm) + (loss.detach() - loss.detach())).isnan()
        self._stopped = torch.maximum(self._stopped, nonfinite.float())
        for group, gradients_of_group in zip(self._groups, gradients, strict=True):
            torch._foreach_add_(group.steps, 1.0)
            # The kernel divides gradients by grad_scale and does nothing where found_inf is 1.
            torch._fused_adamw_(
                group.parameters,
                gradients_of_group,
                group.first_moments,
                group.second_moments,
                [],
                group.steps,
                lr=lr,
                beta1=self._betas[0],
                beta2=self._betas[1],
                weight_decay=group.weight_decay,
                eps=EPS,
                amsgrad=False,
                maximize=False,
                grad_scale=(grad_norm / self._grad_clip).clamp(min=1.0),
                found_inf=self._stopped,
            )
        return grad_norm


class _Group:
    """Parameters that share a weight decay, and the state of each."""

    def __init__(self, parameters: list[nn.Parameter], weight_decay: float) -> None:
        self.parameters: list[Tensor] = list(parameters)
        self.weight_decay = weight_decay
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
