"""The reference backend: a GPT in PyTorch, and on CUDA kernels of our own between the products.

The model is written twice over the same parameters. The plain blocks
(:mod:`trainer.backends.blocks`) and ``linear_cross_entropy`` are torch's operators: what a CPU
runs, and CUDA where it has no Triton. :mod:`trainer.backends.fused` is the same on
:mod:`trainer.backends.kernels`: what CUDA runs by default. With ``compile`` blocks are compiled as
they are written here, and the loss is the kernels'.

Causal attention, no biases, no dropout. Below fp32 the residual stream and everything in the blocks
are bf16 (as in Megatron-Core), at fp8 the blocks' matrix products fp8
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from autoresearch.errors import SpecError
from trainer.backends.blocks import Block, Norm, Rotary, empty
from trainer.backends.compilation import check_compiler, compiled
from trainer.backends.float8 import check_capability, check_shapes
from trainer.backends.fused import FusedBlock, FusedHead, copies_of
from trainer.backends.fused_functions import add_norm
from trainer.backends.kernels import usable_on
from trainer.backends.linear_cross_entropy import exact_nll, loss_and_gradient, mean_loss
from trainer.backends.products import linear
from trainer.backends.weights import RoundedWeight
from trainer.spec import Config

INIT_STD = 0.02
"""Sd of every matrix at the start (GPT-2), but for the two corrections in :meth:`TorchGPT.init`."""
MAX_LOGIT_STD = 0.5
"""The first loss exceeds ln(V) by half the logits' variance: 0.125 nats at this bound."""
MAX_TIED_LOGIT_STD = 0.18
"""A tied head also favours the token it has just read, by a logit that grows with the width; text
repeats itself, and at GPT-2's 0.02 the first loss came out up to 8 % below ln(V)."""


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
        self.embedding_VD = empty(vocab_size, width, device=device)
        self.position_TD: nn.Parameter | None = None
        self.rotary: Rotary | None = None
        if config.positions == "learned":
            self.position_TD = empty(config.seq_len, width, device=device)
        else:
            head_dim = width // config.n_head
            self.rotary = Rotary(config.seq_len, head_dim, device, config.rope_base)
        self.blocks: Iterable[Block] = nn.ModuleList(  # type: ignore[assignment]
            Block(config, device) for _ in range(config.n_layer)
        )
        self.norm = Norm(config, device)
        self.head_VD = (
            self.embedding_VD if config.tie_embeddings else empty(vocab_size, width, device=device)
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
    def kernels(self) -> tuple[str, ...]:
        """The kinds of kernel that a step runs on, none of them torch's own; compiled blocks are
        one."""
        if self._fused_head is None:
            return () if self._train_block is Block.forward else ("compiled blocks",)
        if not self._fused_blocks:
            return "compiled blocks", "cross_entropy"
        quantising = ("float8",) if self.config.precision == "fp8" else ()
        return "norm", "activation", "cross_entropy", *quantising

    @contextmanager
    def on_torch_operators(self) -> Iterator[None]:
        """Train on torch's own operators meanwhile: on no kernel of ours, and nothing compiled."""
        names = ("_train_block", "_loss_and_gradient", "_fused_blocks", "_fused_head")
        before = {name: getattr(self, name) for name in names}
        self._train_block, self._loss_and_gradient = Block.forward, loss_and_gradient
        self._fused_blocks, self._fused_head = [], None
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)

    @contextmanager
    def on_new_copies(self) -> Iterator[None]:
        """Read copies of the weights that the update did not write."""
        for weight in self.copies.values():
            weight.forget()
        yield

    @property
    def copies(self) -> Mapping[nn.Parameter, RoundedWeight]:
        """Copies of parameters that an update is to write along; none on a CPU."""
        if self._fused_head is None:
            return {}
        weights = [weight for block in self._fused_blocks for weight in block.weights]
        return copies_of([*weights, self._fused_head.weight])

    @property
    def block_matrices(self) -> list[nn.Parameter]:
        """Those that the maximal-update parametrisation trains at rates of their own."""
        return [p for block in self.blocks for p in block.parameters() if p.dim() > 1]

    @torch.no_grad()
    def init(self) -> None:
        """Draw the weights so that the first loss is near ln(V).

        Normal with sd 0.02; what writes to the residual stream is smaller by sqrt(2 × n_layer), so
        that its variance does not grow with depth (Radford et al. 2019); embeddings and head are
        smaller where the logits would otherwise start with a larger sd than the bounds above. A
        parametrisation with a base starts as the base would, but for the matrices' variance
        (:attr:`~trainer.spec.Config.width_factor`).
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
        normed_ND = (self._fused_hidden if self._fused_blocks else self._written)(x_ND, batch)
        # The logits' factor, where there are the fewest numbers to multiply.
        factor = self.config.width_factor
        return normed_ND if factor == 1.0 else normed_ND * factor

    def _written(self, x_ND: Tensor, batch: int) -> Tensor:
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
