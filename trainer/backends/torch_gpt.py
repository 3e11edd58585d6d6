"""The reference backend: a GPT in PyTorch, with our own kernels between the products on CUDA.

The model has two implementations over the same parameters. The plain blocks
(:mod:`trainer.backends.blocks`) and ``linear_cross_entropy`` use torch's operators. A CPU runs
them, and CUDA without Triton. :mod:`trainer.backends.fused` does the same on
:mod:`trainer.backends.kernels`, and CUDA runs it by default.

Attention is causal; there are no biases and no dropout. Below fp32 the residual stream and
everything in the blocks are bf16 (as in Megatron-Core). Master weights, the embedding sum and the
loss are fp32.

The code casts dtypes explicitly. Autocast would make every norm fp32 on CUDA, at twice the memory,
and would cost the host time at every operator.

There are no CUDA graphs. They save the host's launches: on an H100, 53 ms for the 1,100 kernels of
a step of the 354 M shape, which keep the GPU busy for 85. Smaller shapes would gain. A graph holds
its own memory pool, must be recorded for every shape, and needs the learning rate on the device.

Shapes: B sequences, T tokens, N = B × T, H heads, G heads of keys and values, K = D / H (head_dim),
R = (H + 2 G) × K, D = d_model, F = d_ff, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.backends.blocks import Block, Norm, Rotary, empty
from trainer.backends.coded import FORWARD_SLOTS, CodeFunction, init_by_code
from trainer.backends.fused import FusedBlock, normed
from trainer.backends.kernels import usable_on
from trainer.backends.linear_cross_entropy import FusedHead, Head
from trainer.backends.muon import Piece
from trainer.backends.weights import RoundedWeight
from trainer.schema import Config, refuse_fp8

INIT_STD = 0.02
"""Initial sd of every matrix (GPT-2), except for the corrections in :meth:`TorchGPT.init`."""
MAX_LOGIT_STD = 0.5
"""Bound on the logits' initial sd; the first loss exceeds ln(V) by half their variance, here by at
most 0.125 nats."""
MAX_TIED_LOGIT_STD = 0.18
"""The same bound for a tied head, which also favors the token it has just read, by a logit that
grows with the width. Text repeats itself, so at GPT-2's 0.02 the first loss was up to 8 % below
ln(V)."""


class TorchBackend:
    """The backend that builds :class:`TorchGPT`."""

    name = "torch"

    def __init__(self, *, kernels: bool | None = None) -> None:
        """:param kernels: run on :mod:`trainer.backends.kernels`; None: if the device can."""
        self._kernels = kernels

    def check(self, config: Config, device: torch.device) -> None:
        """:raises SpecError: for fp8, which only Megatron-Core with TransformerEngine trains."""
        refuse_fp8(config.precision, self.name)

    def build(self, config: Config, vocab_size: int, device: torch.device) -> TorchGPT:
        """See :class:`trainer.backends.Backend`."""
        model = TorchGPT(config, vocab_size, device, kernels=self._kernels)
        model.init()
        return model


class TorchGPT(nn.Module):
    """A decoder-only transformer; weights are undefined until :meth:`init`."""

    chunks_logits = True
    """The model never holds the logits of all tokens, in training or in evaluation."""

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        device: torch.device,
        *,
        kernels: bool | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        if config.code.keys() & FORWARD_SLOTS:
            kernels = False
        self._stream_dtype = torch.float32 if config.precision == "fp32" else torch.bfloat16
        width = config.d_model
        self.embedding_VD = empty(vocab_size, width, device=device)
        self.position_TD: nn.Parameter | None = None
        self.rotary: Rotary | None = None
        if config.positions == "learned":
            self.position_TD = empty(config.seq_len, width, device=device)
        else:
            head_dim = width // config.n_head
            self.rotary = Rotary(config.seq_len, head_dim, device, config.rope_base)
        self.blocks: Iterable[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, device, layer) for layer in range(config.n_layer)
        )
        self.norm = Norm(config, device)
        self.head_VD = (
            self.embedding_VD if config.tie_embeddings else empty(vocab_size, width, device=device)
        )
        self._head = Head(config, vocab_size, device)
        self._fused_blocks: list[FusedBlock] = []
        self._fused_head: FusedHead | None = None
        if usable_on(device) if kernels is None else kernels:
            self._fused_head = FusedHead(self.head_VD, self._stream_dtype)
            self._fused_blocks = [FusedBlock(block, self._stream_dtype) for block in self.blocks]

    @property
    def has_kernels(self) -> bool:
        """Whether a step runs on other kernels than torch's own."""
        return self._fused_head is not None

    @contextmanager
    def on_torch_operators(self) -> Iterator[None]:
        """Train on torch's own operators, without our kernels, in the block."""
        before = self._fused_blocks, self._fused_head
        self._fused_blocks, self._fused_head = [], None
        try:
            yield
        finally:
            self._fused_blocks, self._fused_head = before

    @property
    def copies(self) -> Mapping[nn.Parameter, RoundedWeight]:
        """Return the copies of parameters that each update must also write; none on a CPU."""
        if self._fused_head is None:
            return {}
        weights = [w for block in self._fused_blocks for w in block.weights]
        return {
            weight.parameter: weight
            for weight in (*weights, self._fused_head.weight)
            if weight.storage is not None
        }

    @property
    def block_matrices(self) -> list[nn.Parameter]:
        """Return the matrices that the maximal-update parametrization trains at their own rates."""
        return [p for block in self.blocks for p in block.parameters() if p.dim() > 1]

    @property
    def muon_pieces(self) -> list[Piece]:
        """Return the matrices of the blocks as Muon updates them."""
        return [piece for block in self.blocks for piece in block.muon_pieces()]

    @torch.no_grad()
    def init(self) -> None:
        """Draw the weights so that the first loss is near ln(V).

        They are normal with sd 0.02. Matrices that write to the residual stream are smaller by
        sqrt(2 × n_layer), so that its variance does not grow with depth (Radford et al. 2019).
        Embeddings and head are smaller if the logits' sd would exceed the bounds above. A
        parametrization with a base starts as the base would, except for the matrices' variance
        (:attr:`~trainer.schema.Config.width_factor`).
        """
        config = self.config
        max_logit_std = MAX_TIED_LOGIT_STD if config.tie_embeddings else MAX_LOGIT_STD
        base_width = config.mup_base_width or config.d_model
        table_std = min(INIT_STD, max_logit_std / math.sqrt(base_width))
        std = INIT_STD * config.init_scale * math.sqrt(config.width_factor)
        residual_std = std / math.sqrt(2 * (config.mup_base_depth or config.n_layer))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            elif name in {"embedding_VD", "position_TD", "head_VD"}:
                parameter.normal_(0.0, table_std)
            else:
                to_residual = name.endswith(("out_DD", "down_DF"))
                parameter.normal_(0.0, residual_std if to_residual else std)
        init_by_code(config, self.blocks, std, residual_std)
        for module in self.modules():
            if isinstance(module, CodeFunction):
                module.reset()

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """See :meth:`trainer.backends.Backend.build`."""
        x_ND, targets_N = self.hidden(tokens_BT), targets_BT.flatten()
        if self._fused_head is None:
            loss: Tensor = self._head(x_ND, self.head_VD, targets_N)
        elif self.training:
            loss = self._fused_head.mean_loss(x_ND, targets_N)
        else:
            loss = self._fused_head.exact_nll(x_ND, targets_N)
        return loss if self.training else loss.view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """Return ``logits_BTV``, fp32."""
        return self._head.logits(self.hidden(tokens_BT), self.head_VD).view(*tokens_BT.shape, -1)

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """Return the ``x_ND`` that the head reads."""
        batch, length = tokens_BT.shape
        x_BTD = functional.embedding(tokens_BT, self.embedding_VD)
        if self.position_TD is not None:
            x_BTD = x_BTD + self.position_TD[:length]
        # One row per token: a matrix product of two dimensions dispatches without reshaping.
        x_ND = x_BTD.to(self._stream_dtype).flatten(0, 1)
        if self._fused_blocks:
            delta_ND: Tensor | None = None
            for fused in self._fused_blocks:
                x_ND, delta_ND = fused(x_ND, delta_ND, batch, self.rotary)
            normed_ND = normed(x_ND, delta_ND, self.norm)
        else:
            for block in self.blocks:
                x_ND = block(x_ND, batch, self.rotary)
            normed_ND = self.norm(x_ND)
        # The logits' factor is applied here, to the fewest numbers.
        factor = self.config.width_factor
        return normed_ND if factor == 1.0 else normed_ND * factor
