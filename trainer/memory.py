"""What a config's training will need, by arithmetic, and what its device has.

Two moments compete for the peak, and the larger is predicted. P is the number of parameters, W
those of the matrices inside the blocks and of the head, N the tokens of a step, C those of a chunk
of the loss, L blocks, D d_model, F d_ff, V the vocabulary, H heads, G heads of keys and values, T
seq_len:

    at the loss      12 P + copies × W + N × L × block + loss
    at the update    16 P

12 bytes a parameter are the fp32 master weight (4) and AdamW's two moments (8); the gradient (4) is
made on the way back, while the activations go, so that the two are not held at once. Below fp32
``copies`` are what the matrix products read: a bf16 weight (2 bytes), or in fp8 the weight and its
transpose (1 + 1).

``block`` is Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1, with a fused attention that
holds no scores and without dropout: 34 D becomes, at F = 4 D, 32 D bytes a token,

    norms 4 D · queries 2 D · keys, values 4 D G / H · inputs of the four products 6 D + 2 F ·
    GELU's input 2 F

with 4 F more for SwiGLU's second branch and its product, one byte less for each input of a product
that is kept in fp8 (3 D + F), and twice all of it in fp32. The CPU's bf16 attention of short
sequences holds its weights: 2 H T. A compiled block keeps less than this: what is cheap to compute
again it computes again, how much is not yet measured.

``loss`` is N × V logits times the bytes of the copies that are alive at once (:data:`LOSS_BYTES`).
The torch backend holds those of C tokens only (:mod:`trainer.chunks`), and where C < N, besides,
the gradients it makes on the way: V × D of the head in fp32 and N × D.

Not counted: workspaces, the allocator's rounding, the batch itself, the embedding's output, and on
a GPU the CUDA context, which is no allocation but takes from the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from trainer.chunks import chunk_tokens
from trainer.errors import SpecError
from trainer.flops import block_weights, product_weights
from trainer.gpu import gpu_memory
from trainer.spec import Config, Frozen, Positive

GIB = 1 << 30

LOSS_BYTES: Mapping[str, int] = {
    "torch": 12,  # log-softmax, its gradient from the loss, and the gradient it hands on, in fp32
    "megatron": 14,  # bf16 logits, fp32 logits, their softmax, its gradient
}
"""Bytes alive at once for each logit, by backend."""
CHUNK_BYTES = 10
"""The same of a chunk: bf16 logits, their fp32 copy and its log-softmax; or, rounded up, fp32
logits, log-softmax and where the targets are (1). Compiled it is 4 below fp32."""

CPU_PROCESS_GIB = 0.20
"""Resident memory of a trial's process with torch imported, before it has a model."""
CPU_SHORT_SEQUENCE = 512
"""Up to this many tokens the CPU's bf16 attention holds its weights."""

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """An estimate, taken apart."""

    fixed_bytes: float
    """Held at the loss however many tokens a step has, a chunk of logits included where they are
    chunked."""
    per_token_bytes: float
    """Held at the loss for each token of a step."""
    update_bytes: float
    """Held at the update."""


class AnalyticMemory:
    """The estimate of this module's docstring; an :class:`agent.rails.MemoryModel`."""

    def __init__(self, *, vocab_size: int, backend: str, device: str, limit_gib: float) -> None:
        """:raises SpecError: on a backend whose loss is not known here."""
        if backend not in LOSS_BYTES:
            raise SpecError(
                f"no memory estimate is known for the backend {backend!r};"
                f" choose one of {', '.join(LOSS_BYTES)}"
            )
        self.vocab_size = vocab_size
        self._loss_bytes = LOSS_BYTES[backend]
        self._chunked = backend == "torch"
        self._on_cpu = device == "cpu"
        self._limit_gib = limit_gib

    @property
    def limit_gib(self) -> float:
        """What the device has for a trial."""
        return self._limit_gib

    def predict_gib(self, config: Config) -> float:
        """Predicted peak of training ``config``."""
        parts = self.parts(config)
        at_loss = parts.fixed_bytes + parts.per_token_bytes * config.tokens_per_step
        return max(at_loss, parts.update_bytes) / GIB

    def parts(self, config: Config) -> MemoryParts:
        """The terms the prediction is made of."""
        params = parameter_count(config, self.vocab_size)
        process = CPU_PROCESS_GIB * GIB if self._on_cpu else 0.0
        copies = 0 if config.precision == "fp32" else 2
        head = self.vocab_size * config.d_model
        matrices = product_weights(config, self.vocab_size)
        block = _block_bytes(config)
        if self._on_cpu and config.precision == "bf16" and config.seq_len <= CPU_SHORT_SEQUENCE:
            block += 2 * config.n_head * config.seq_len
        fixed = process + 12 * params + copies * matrices
        per_token = config.n_layer * block
        chunk = self._chunk_tokens(config)
        if chunk < config.tokens_per_step:
            fixed += CHUNK_BYTES * chunk * self.vocab_size + 4 * head
            per_token += (4 if config.precision == "fp32" else 2) * config.d_model
        else:
            per_token += self._loss_bytes * self.vocab_size
        return MemoryParts(
            fixed_bytes=fixed, per_token_bytes=per_token, update_bytes=process + 16 * params
        )

    def _chunk_tokens(self, config: Config) -> int:
        """Tokens whose logits are alive at once."""
        if not self._chunked:
            return config.tokens_per_step
        return chunk_tokens(config.tokens_per_step, self.vocab_size)


def parameter_count(config: Config, vocab_size: int) -> int:
    """Parameters of the GPT every backend builds: no biases, one gain a norm."""
    tables = vocab_size * (1 if config.tie_embeddings else 2)
    if config.positions == "learned":
        tables += config.seq_len
    gains = 2 * config.n_layer + 1
    return (tables + gains) * config.d_model + config.n_layer * block_weights(config)


def _block_bytes(config: Config) -> int:
    """Activations of one block for one token, between the forward pass and the backward."""
    hidden = (8 if config.activation == "swiglu" else 4) * config.d_ff
    keys_and_values = 4 * config.d_model * config.kv_heads // config.n_head
    in_16_bits = 12 * config.d_model + keys_and_values + hidden
    if config.precision == "fp32":
        return 2 * in_16_bits
    if config.precision == "fp8":
        return in_16_bits - (3 * config.d_model + config.d_ff)
    return in_16_bits


# --- what there is ----------------------------------------------------------------------------


class DeviceLimit(Frozen):
    """The memory a trial can have at most."""

    gib: Positive
    source: Literal["device", "system", "container", "trial"]
    """The GPU's own memory; the machine's, which a CPU and a GPU of a unified machine use; what
    this container may use of it; or the limit set for a trial."""


def device_limit(device: str, trial_limit_gib: float | None = None) -> DeviceLimit:
    """What ``device`` has, everything else on it put aside.

    It is what there is and not what is free at this moment, so that a question asked twice gets
    one answer. ``trial_limit_gib`` bounds a trial's resident memory, which is its peak on a CPU
    and says nothing about a GPU's.

    :raises SpecError: where there is no such device.
    """
    limits = [DeviceLimit(gib=psutil.virtual_memory().total / GIB, source="system")]
    container_gib = _container_gib()
    if container_gib is not None:
        limits.append(DeviceLimit(gib=container_gib, source="container"))
    if device == "cpu":
        if trial_limit_gib is not None:
            limits.append(DeviceLimit(gib=trial_limit_gib, source="trial"))
        return min(limits, key=lambda limit: limit.gib)
    memory = gpu_memory(device)
    gpu = DeviceLimit(gib=memory.gib, source="device")
    return min((*limits, gpu), key=lambda limit: limit.gib) if memory.is_unified else gpu


def _container_gib() -> float | None:
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text("ascii").strip()
        except OSError:
            continue
        # Version 1 says "no limit" with a number near 2**63.
        if text.isdigit() and 0 < int(text) < 1 << 60:
            return int(text) / GIB
    return None
