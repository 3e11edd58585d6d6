"""The loss of a linear head, which never holds the logits of all tokens.

Training needs the mean loss and its gradients. The gradient of the mean with respect to the logits
follows from the logits alone: (softmax - one-hot) / N. So the forward pass of :class:`_MeanLoss`
goes over chunks of tokens. It turns each chunk's logits into their gradient, takes both products
with it, and drops the logits. The backward pass only multiplies by the upstream gradient.
Liger-Kernel does the same (Hsu et al. 2024, arXiv 2410.10989, section 3.2).

A CPU runs this, and CUDA without Triton. :mod:`trainer.backends.fused` does the same on padded rows
with our own kernel (:mod:`trainer.backends.kernels` gives the reasons). It would be simpler to
recompute the logits in the backward pass. But that costs one more product with the head: about 4 %
of a step of the 354 M shape.

A config's own ``logits`` or ``aux_loss`` has a head of its own, :class:`CodedHead`, in torch's
operators.

Shapes: N tokens, C of them in a chunk, D d_model, V vocabulary.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainer.backends.coded import code_function
from trainer.backends.products import linear, product
from trainer.memory.parts import EXACT_LOGITS_AT_ONCE, chunk_tokens
from trainer.spec import Config

LossAndGradient: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]
"""The type of :func:`loss_and_gradient`, compiled or not."""


def mean_loss(
    x_ND: Tensor, head_VD: Tensor, targets_N: Tensor, loss_and_gradient: LossAndGradient
) -> Tensor:
    """Return the mean negative log-likelihood in nats, an fp32 scalar.

    Logits have the dtype of ``x_ND``; log-softmax is fp32. If all logits fit into one chunk,
    torch's own cross-entropy takes them all, which is faster for small vocabularies (1,024 tokens
    of 1,024 words in bf16 on a CPU: 4 ms against 5).
    """
    tokens, vocab_size = x_ND.shape[0], head_VD.shape[0]
    chunk = chunk_tokens(tokens, vocab_size)
    if chunk == tokens:
        logits_NV = linear(x_ND, head_VD).float()
        return functional.cross_entropy(logits_NV, targets_N, reduction="none").mean()
    loss: Tensor = _MeanLoss.apply(  # type: ignore[no-untyped-call]
        x_ND, head_VD, targets_N, chunk, loss_and_gradient
    )
    return loss


def loss_and_gradient(logits_CV: Tensor, targets_C: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return a chunk's summed loss, fp32, and ``scale`` times its gradient for the logits.

    The gradient has the logits' dtype; everything between is fp32.
    """
    log_p_CV = functional.log_softmax(logits_CV, -1, dtype=torch.float32)
    targets_C1 = targets_C[:, None]
    vocabulary_V = torch.arange(logits_CV.shape[1], device=logits_CV.device)
    loss = -log_p_CV.gather(1, targets_C1).sum()
    # In place, which saves half a GiB if this is not compiled.
    gradient_CV = log_p_CV.exp_().add_(vocabulary_V == targets_C1, alpha=-1).mul_(scale)
    return loss, gradient_CV.to(logits_CV.dtype)


class _MeanLoss(torch.autograd.Function):
    """The mean loss, differentiable once: the forward pass computes its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        head_VD: Tensor,
        targets_N: Tensor,
        chunk: int,
        loss_and_gradient: LossAndGradient,
    ) -> Tensor:
        weight_VD = head_VD.to(x_ND.dtype)
        gradient_ND = torch.empty_like(x_ND)
        gradient_VD = torch.zeros_like(head_VD)
        total = torch.zeros((), device=x_ND.device)
        chunks = (torch.split(rows, chunk) for rows in (x_ND, targets_N, gradient_ND))
        for x_CD, targets_C, gradient_CD in zip(*chunks, strict=True):
            loss, gradient_CV = loss_and_gradient(
                linear(x_CD, weight_VD), targets_C, 1.0 / x_ND.shape[0]
            )
            total += loss
            product(gradient_CV, weight_VD, out=gradient_CD)
            # In bf16 each product is rounded, as autocast rounds its single product; their sum is
            # fp32. (mm and addmm that write fp32 exist only on CUDA, and move more bytes.)
            gradient_VD += product(gradient_CV.t(), x_CD)
        ctx.gradients = gradient_ND, gradient_VD
        return total / x_ND.shape[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("this loss was differentiated before, and kept no gradients for it")
        gradient_ND, gradient_VD = ctx.gradients
        ctx.gradients = None
        # In place, since a second gradient of the head would be the step's largest tensor. A check
        # whether ``upstream`` is 1, as it almost always is, would wait for the device.
        return gradient_ND.mul_(upstream), gradient_VD.mul_(upstream), None, None, None


def exact_nll(x_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
    """Return ``nll_N`` in nats, for evaluation: logits in ``x_ND``'s dtype, log-softmax in fp64."""
    weight_VD = head_VD.to(x_ND.dtype)
    return torch.cat(
        [
            _exact_nll_of(linear(x_CD, weight_VD), targets_C)
            for x_CD, targets_C in _exact_chunks(x_ND, targets_N, head_VD.shape[0])
        ]
    )


def exact_nll_of_logits(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return ``nll_N`` of existing logits, which are converted to fp64 a chunk at a time."""
    chunks = _exact_chunks(logits_NV, targets_N, logits_NV.shape[1])
    return torch.cat([_exact_nll_of(logits_CV, targets_C) for logits_CV, targets_C in chunks])


def _exact_nll_of(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    """Return ``nll_C`` of one chunk."""
    if logits_CV.is_cuda:
        return nll_with_fp64_sums(logits_CV, targets_C)
    return functional.cross_entropy(logits_CV.double(), targets_C, reduction="none")


def nll_with_fp64_sums(logits_CV: Tensor, targets_C: Tensor) -> Tensor:
    """Return ``nll_C`` in fp64 nats from exponentials in fp32 that are summed in fp64.

    The kernel of :mod:`trainer.backends.kernels.triton_cross_entropy` does the same, since a GB10
    has one fp64 unit for 64 of fp32.
    """
    logits_CV = logits_CV.float()
    largest_C1 = logits_CV.amax(1, keepdim=True)
    chosen_C1 = logits_CV.gather(1, targets_C[:, None]).double() - largest_C1
    sum_C = (logits_CV - largest_C1).exp_().sum(1, dtype=torch.float64)
    return sum_C.log() - chosen_C1[:, 0]


def _exact_chunks(
    rows_N: Tensor, targets_N: Tensor, vocab_size: int
) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield rows and targets of as many tokens as evaluation holds logits for."""
    chunk = chunk_tokens(rows_N.shape[0], vocab_size, EXACT_LOGITS_AT_ONCE)
    return zip(torch.split(rows_N, chunk), torch.split(targets_N, chunk), strict=True)


class CodedHead(nn.Module):
    """Logits and losses; the head's matrix is the model's."""

    def __init__(self, config: Config, vocab_size: int, device: torch.device) -> None:
        super().__init__()
        self.change = code_function("logits", config, vocab_size, device)
        self.auxiliary = code_function("aux_loss", config, vocab_size, device)

    @classmethod
    def of(cls, config: Config, vocab_size: int, device: torch.device) -> Self | None:
        """Return the config's own head; None if it has none."""
        wanted = config.code.keys() & {"code.logits", "code.aux_loss"}
        return cls(config, vocab_size, device) if wanted else None

    def logits(self, x_ND: Tensor, head_VD: Tensor) -> Tensor:
        """Return ``logits_NV``, fp32."""
        logits_NV = linear(x_ND, head_VD).float()
        if self.change is None:
            return logits_NV
        changed_NV: Tensor = self.change(logits_NV)
        return changed_NV

    def forward(self, x_ND: Tensor, head_VD: Tensor, targets_N: Tensor) -> Tensor:
        """Return the mean loss in training and ``nll_N`` in evaluation, as
        :meth:`trainer.backends.Backend.build` says.

        It goes chunk by chunk, so that the logits of all tokens are never held.
        """
        most = () if self.training else (EXACT_LOGITS_AT_ONCE,)
        rows = chunk_tokens(len(x_ND), len(head_VD), *most)
        pieces = zip(torch.split(x_ND, rows), torch.split(targets_N, rows), strict=True)
        if self.training:
            losses = [
                checkpoint(self._summed, x_CD, head_VD, targets_C, use_reentrant=False)
                for x_CD, targets_C in pieces
            ]
            return torch.stack(losses).sum() / len(x_ND)
        return torch.cat(
            [
                functional.cross_entropy(
                    self.logits(x_CD, head_VD).double(), targets_C, reduction="none"
                )
                for x_CD, targets_C in pieces
            ]
        )

    def _summed(self, x_CD: Tensor, head_VD: Tensor, targets_C: Tensor) -> Tensor:
        """Return the loss of a chunk, summed over its tokens."""
        logits_CV = self.logits(x_CD, head_VD)
        loss = functional.cross_entropy(logits_CV, targets_C, reduction="sum")
        if self.auxiliary is None:
            return loss
        return loss + len(x_CD) * self.auxiliary.number(logits_CV, x_CD.float())
