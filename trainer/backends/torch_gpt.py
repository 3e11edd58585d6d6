"""The reference backend: a GPT in PyTorch, and on CUDA kernels of our own between the products.

The model is written twice over the same parameters. :class:`Block` and ``linear_cross_entropy`` are
torch's operators: what a CPU runs, and CUDA where it has no Triton. :mod:`trainer.backends.fused`
is the same on :mod:`trainer.backends.kernels`: what CUDA runs by default. With ``compile`` blocks
are compiled as they are written here, and the loss is the kernels'.

Pre-norm blocks, causal attention, no biases, no dropout. Below fp32 the residual stream and
everything in the blocks are bf16 (as in Megatron-Core), at fp8 the blocks' matrix products fp8
(:mod:`trainer.backends.float8`); master weights, the embedding sum and the loss are fp32.

Dtypes are cast where they change and not by autocast, which on CUDA would make every norm fp32, at
twice the memory, and costs the host a look at every operator.

No CUDA graphs: they save the host's launches, microseconds a kernel, and a step of the 354 M shape
keeps the GPU busy for far longer than launching its thousand or so kernels takes (1.2 s on a GB10,
by its published throughput). Small shapes would gain, how much is not yet measured; but a graph
holds its own memory pool, must be recorded for every shape, and wants the learning rate on the
device.

Shapes: B sequences, T tokens, N = B × T, H heads, G heads of keys and values, K = D / H (head_dim),
R = (H + 2 G) × K, D = d_model, F = d_ff, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.accounting.declared import has_gpu_kernels
from trainer.backends.attention import attend
from trainer.backends.compilation import check_compiler, compiled
from trainer.backends.float8 import check_capability, check_shapes, float8_linear
from trainer.backends.fused import FusedBlock, FusedHead, add_norm, copies_of
from trainer.backends.kernels import usable_on
from trainer.backends.kernels.sizes import NORM_EPS
from trainer.backends.linear_cross_entropy import exact_nll, loss_and_gradient, mean_loss
from trainer.backends.weights import RoundedWeight
from trainer.errors import SpecError
from trainer.spec import Config

INIT_STD = 0.02
"""Of every matrix at the start (GPT-2), but for the two corrections in :meth:`TorchGPT.init`."""
MAX_LOGIT_STD = 0.5
"""The first loss exceeds ln(V) by half the logits' variance: 0.125 nats at this bound."""
MAX_TIED_LOGIT_STD = 0.18
"""A tied head also favours the token it has just read, by a logit that grows with the width; text
repeats itself, and at GPT-2's 0.02 the first loss came out up to 8 % below ln(V)."""
ROTARY_BASE = 10_000.0

Product: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""``(x_NI, weight_OI) -> y_NO``, in the dtype of ``x``; the weight is fp32."""


class TorchBackend:
    """Builds :class:`TorchGPT`."""

    name = "torch"

    def __init__(self, *, compile: bool = False, kernels: bool | None = None) -> None:
        """:param compile: train through :mod:`trainer.backends.compilation`.
        :param kernels: run on :mod:`trainer.backends.kernels`; None: where the device can.
        """
        self._compile = compile
        self._kernels = kernels

    def check(self, config: Config, device: torch.device) -> None:
        """Refuse fp8 on shapes or devices that have none, and compilation without a compiler."""
        if config.precision == "fp8":
            if device.type != "cuda":
                raise SpecError(f"precision fp8 needs a GPU, not {device}; choose bf16 or fp32")
            check_capability(torch.cuda.get_device_capability(device))
            check_shapes(config)
        if self._compile:
            check_compiler(device)

    def build(self, config: Config, vocab_size: int, device: torch.device) -> TorchGPT:
        """See :class:`trainer.backends.base.Backend`."""
        model = TorchGPT(config, vocab_size, device, compile=self._compile, kernels=self._kernels)
        model.init()
        return model


class TorchGPT(nn.Module):
    """A decoder-only transformer; weights are undefined until :meth:`init`."""

    chunks_logits = True
    """Never holds those of all tokens, in training or in evaluation."""

    def __init__(
        self,
        config: Config,
        vocab_size: int,
        device: torch.device,
        *,
        compile: bool = False,
        kernels: bool | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self._stream_dtype = torch.float32 if config.precision == "fp32" else torch.bfloat16
        # One for all blocks, so that all share what is compiled. Evaluation, whose shapes are
        # others, runs as written.
        self._train_block = compiled(Block.forward) if compile else Block.forward
        self._loss_and_gradient = compiled(loss_and_gradient) if compile else loss_and_gradient
        width = config.d_model
        self.embedding_VD = _empty(vocab_size, width, device=device)
        self.position_TD: nn.Parameter | None = None
        self.rotary: Rotary | None = None
        if config.positions == "learned":
            self.position_TD = _empty(config.seq_len, width, device=device)
        else:
            self.rotary = Rotary(config.seq_len, width // config.n_head, device)
        self.blocks: Iterable[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, device) for _ in range(config.n_layer)
        )
        self.norm = Norm(config, device)
        self.head_VD = (
            self.embedding_VD if config.tie_embeddings else _empty(vocab_size, width, device=device)
        )
        self._fused_blocks: list[FusedBlock] = []
        self._fused_head: FusedHead | None = None
        if usable_on(device) if kernels is None else kernels:
            self._fuse(blocks=not compile)

    def _fuse(self, *, blocks: bool) -> None:
        """Run the loss on kernels, and the blocks too where they are not compiled."""
        dtype = self._stream_dtype
        self._fused_head = FusedHead(self.head_VD, dtype)
        if blocks:
            float8 = self.config.precision == "fp8"
            self._fused_blocks = [FusedBlock(b, dtype, float8=float8) for b in self.blocks]

    @property
    def copies(self) -> Mapping[nn.Parameter, RoundedWeight]:
        """Copies of parameters that an update is to write along; none on a CPU."""
        if self._fused_head is None:
            return {}
        weights = [weight for block in self._fused_blocks for weight in block.weights]
        return copies_of([*weights, self._fused_head.weight])

    @torch.no_grad()
    def init(self) -> None:
        """Draw the weights so that the first loss is near ln(V).

        Normal with sd 0.02; what writes to the residual stream is smaller by sqrt(2 × n_layer), so
        that its variance does not grow with depth (Radford et al. 2019); embeddings and head are
        smaller where the logits would otherwise start with a larger sd than the bounds above.
        """
        tied = self.config.tie_embeddings
        max_logit_std = MAX_TIED_LOGIT_STD if tied else MAX_LOGIT_STD
        table_std = min(INIT_STD, max_logit_std / math.sqrt(self.config.d_model))
        residual_std = INIT_STD / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            elif name in {"embedding_VD", "position_TD", "head_VD"}:
                parameter.normal_(0.0, table_std)
            else:
                to_residual = name.endswith(("out_DD", "down_DF"))
                parameter.normal_(0.0, residual_std if to_residual else INIT_STD)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """See :meth:`trainer.backends.base.Backend.build`."""
        x_ND, targets_N = self.hidden(tokens_BT), targets_BT.flatten()
        head = self._fused_head
        if head is not None:
            if self.training:
                return head.mean_loss(x_ND, targets_N)
            return head.exact_nll(x_ND, targets_N).view_as(targets_BT)
        if self.training:
            return mean_loss(x_ND, self.head_VD, targets_N, self._loss_and_gradient)
        return exact_nll(x_ND, self.head_VD, targets_N).view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """``logits_BTV``, fp32."""
        x_ND = self.hidden(tokens_BT)
        return linear(x_ND, self.head_VD).float().view(*tokens_BT.shape, -1)

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """``x_ND`` that the head reads."""
        batch, length = tokens_BT.shape
        x_BTD = functional.embedding(tokens_BT, self.embedding_VD)
        if self.position_TD is not None:
            x_BTD = x_BTD + self.position_TD[:length]
        # One row a token: a matrix product of two dimensions dispatches without reshaping.
        x_ND = x_BTD.to(self._stream_dtype).flatten(0, 1)
        if self._fused_blocks:
            return self._fused_hidden(x_ND, batch)
        run = self._train_block if self.training else Block.forward
        for block in self.blocks:
            x_ND = run(block, x_ND, batch, self.rotary)
        normed_ND: Tensor = self.norm(x_ND)
        return normed_ND

    def _fused_hidden(self, x_ND: Tensor, batch: int) -> Tensor:
        delta_ND: Tensor | None = None
        for block in self._fused_blocks:
            x_ND, delta_ND = block(x_ND, delta_ND, batch, self.rotary)
        assert delta_ND is not None
        return add_norm(x_ND, delta_ND, self.norm)


class Block(nn.Module):
    """Attention, then a feed-forward block, each added to the residual stream."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__()
        self.n_head, self.n_kv_head = config.n_head, config.kv_heads
        self.head_dim = config.d_model // config.n_head
        self.swiglu = config.activation == "swiglu"
        self._linear: Product = float8_linear if config.precision == "fp8" else linear
        width, hidden = config.d_model, config.d_ff
        self.attention_norm = Norm(config, device)
        # The queries' heads come first, then those of the keys, then of the values.
        heads = self.n_head + 2 * self.n_kv_head
        self.qkv_RD = _empty(heads * self.head_dim, width, device=device)
        self.out_DD = _empty(width, width, device=device)
        self.feed_forward_norm = Norm(config, device)
        # For SwiGLU the gate's rows come first, then the linear branch's.
        self.up_FD = _empty(2 * hidden if self.swiglu else hidden, width, device=device)
        self.down_DF = _empty(width, hidden, device=device)

    def forward(self, x_ND: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        """``x_ND`` of ``batch`` sequences laid end to end, to the same shape."""
        x_ND = x_ND + self._attend(self.attention_norm(x_ND), batch, rotary)
        return x_ND + self._feed_forward(self.feed_forward_norm(x_ND))

    def _attend(self, x_ND: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        qkv_NR = self._linear(x_ND, self.qkv_RD)
        return self._linear(self.attend_heads(qkv_NR, batch, rotary), self.out_DD)

    def attend_heads(self, qkv_NR: Tensor, batch: int, rotary: Rotary | None) -> Tensor:
        """What attention reads out, ``[N, D]``, before it is projected."""
        heads = (self.n_head, self.n_kv_head, self.n_kv_head)
        qkv_BTHK = qkv_NR.view(batch, -1, sum(heads), self.head_dim)
        # Split before they are transposed, so that backward their gradients are laid end to end.
        split = qkv_BTHK.split_with_sizes(heads, 2)
        q_BHTK, k_BGTK, v_BGTK = (x_BTHK.transpose(1, 2) for x_BTHK in split)
        if rotary is not None:
            q_BHTK, k_BGTK = rotary(q_BHTK), rotary(k_BGTK)
        y_BHTK = attend(q_BHTK, k_BGTK, v_BGTK)
        return y_BHTK.transpose(1, 2).reshape(qkv_NR.shape[0], -1)

    def _feed_forward(self, x_ND: Tensor) -> Tensor:
        up = self._linear(x_ND, self.up_FD)
        if self.swiglu:
            gate_NF, linear_NF = up.chunk(2, dim=-1)
            hidden_NF = functional.silu(gate_NF) * linear_NF
        else:
            hidden_NF = functional.gelu(up)
        return self._linear(hidden_NF, self.down_DF)


class Norm(nn.Module):
    """LayerNorm without bias, or RMSNorm."""

    def __init__(self, config: Config, device: torch.device) -> None:
        super().__init__()
        self.rms = config.norm == "rmsnorm"
        self.gain_D = _empty(config.d_model, device=device)

    def forward(self, x_ND: Tensor) -> Tensor:
        """``x_ND`` with rows of unit scale, times the gain."""
        shape = self.gain_D.shape
        gain_D: Tensor = self.gain_D
        if self.rms or has_gpu_kernels(x_ND.device):
            # The fused kernels want one dtype. With two, RMSNorm warns and falls back to many, and
            # CUDA's LayerNorm refuses.
            gain_D = gain_D.to(x_ND.dtype)
        if self.rms:
            return functional.rms_norm(x_ND, shape, gain_D, NORM_EPS)
        return functional.layer_norm(x_ND, shape, gain_D, None, NORM_EPS)


class Rotary(nn.Module):
    """Rotary positions: pairs (i, i + K/2) turn by position × base^(-2i/K) (Su et al. 2021)."""

    def __init__(self, seq_len: int, head_dim: int, device: torch.device) -> None:
        super().__init__()
        exponent_P = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        position_T = torch.arange(seq_len, device=device, dtype=torch.float32)
        angle_TP = torch.outer(position_T, ROTARY_BASE**-exponent_P)
        self.register_buffer("cos_TK", angle_TP.cos().repeat(1, 2), persistent=False)
        sin_TP = angle_TP.sin()
        self.register_buffer("sin_TK", torch.cat((-sin_TP, sin_TP), 1), persistent=False)

    def forward(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys, turned; same shape and dtype."""
        length, head_dim = x_BHTK.shape[-2:]
        cos_TK, sin_TK = self.get_buffer("cos_TK")[:length], self.get_buffer("sin_TK")[:length]
        return (x_BHTK * cos_TK + x_BHTK.roll(head_dim // 2, -1) * sin_TK).to(x_BHTK.dtype)


def linear(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """``x_NI`` times the transpose of ``weight_OI``, in the dtype of ``x``."""
    return functional.linear(x_NI, weight_OI.to(x_NI.dtype))


def _empty(*shape: int, device: torch.device) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device=device))
