"""A hand-written GPT and its training loop, as a reference to measure against.

    python -m bench.reference_gpt SPEC.json OUT_DIR

reads a TrialSpec and writes a result.json, as a trial does. Model, loss and optimizer are the usual
ones: modules of ``torch.nn``, ``scaled_dot_product_attention``, autocast to bf16 with the residual
stream in fp32, ``F.cross_entropy`` over the logits of the whole batch, and
``torch.optim.AdamW(fused=True)``. Weights, batches, learning rates and the evaluation are those of
the trial, so that both compute the same numbers: in fp32 on a CPU a test finds them equal. It waits
for the GPU only every ten steps, as a carefully written loop does.
"""

import math
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.corpus import open_corpus
from trainer.machine.device import device_name, peak_mem_gib, peak_reserved_gib
from trainer.schema import Config, TrialOk, TrialSpec
from trainer.training.child import born_at
from trainer.training.schedule import Batches, Schedule
from trainer.training.scoring import evaluate

LOG_EVERY = 10


class RMSNorm(nn.RMSNorm):
    """torch's, with a gain in the input's dtype: with two dtypes it is not one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Causal self-attention, with grouped queries, a norm of heads and rotary positions or not."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = (config.n_head, config.kv_heads, config.kv_heads)
        self.head_dim = config.d_model // config.n_head
        self.qkv = nn.Linear(config.d_model, sum(self.heads) * self.head_dim, bias=False)
        normed = config.qk_norm
        self.q_norm = RMSNorm(self.head_dim, 1e-5) if normed else nn.Identity()
        self.k_norm = RMSNorm(self.head_dim, 1e-5) if normed else nn.Identity()
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        qkv_BTHK = self.qkv(x_BTD).unflatten(-1, (sum(self.heads), self.head_dim))
        q_BTHK, k_BTGK, v_BTGK = qkv_BTHK.split(self.heads, 2)
        q_BTHK, k_BTGK = self.q_norm(q_BTHK), self.k_norm(k_BTGK)
        if turn is not None:
            q_BTHK, k_BTGK = rotated(q_BTHK, *turn), rotated(k_BTGK, *turn)
        dtype = v_BTGK.dtype
        y_BHTK = functional.scaled_dot_product_attention(
            q_BTHK.to(dtype).transpose(1, 2),
            k_BTGK.to(dtype).transpose(1, 2),
            v_BTGK.transpose(1, 2),
            is_causal=True,
            enable_gqa=self.heads[0] != self.heads[1],
        )
        projected: Tensor = self.out(y_BHTK.transpose(1, 2).flatten(2))
        return projected


def rotated(x_BTHK: Tensor, cos_T1P: Tensor, sin_T1P: Tensor) -> Tensor:
    """Rotate pairs (i, i + K/2)."""
    a, b = x_BTHK.chunk(2, -1)
    cos_T1P, sin_T1P = cos_T1P.to(a.dtype), sin_T1P.to(a.dtype)
    return torch.cat((a * cos_T1P - b * sin_T1P, b * cos_T1P + a * sin_T1P), -1)


def norm_of(config: Config) -> nn.Module:
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, 1e-5)
    return nn.LayerNorm(config.d_model, bias=False)


class Block(nn.Module):
    """Attention and a feed-forward network, each after a norm and added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.activation, self.gated = config.activation, config.gated
        self.norm_1 = norm_of(config)
        self.attention = Attention(config)
        self.norm_2 = norm_of(config)
        self.up = nn.Linear(config.d_model, config.d_ff * (1 + self.gated), bias=False)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor, turn: tuple[Tensor, Tensor] | None) -> Tensor:
        x_BTD = x_BTD + self.attention(self.norm_1(x_BTD), turn)
        hidden = self.up(self.norm_2(x_BTD))
        if self.activation == "relu2":
            hidden = functional.relu(hidden).square()
        elif self.activation == "gelu":
            hidden = functional.gelu(hidden)
        else:
            gate, hidden = hidden.chunk(2, -1)
            form = functional.silu if self.activation == "swiglu" else functional.gelu
            hidden = form(gate) * hidden
        added: Tensor = x_BTD + self.down(hidden)
        return added


class ReferenceGPT(nn.Module):
    """A GPT of any activation, norm, positions and heads, tied or not; no biases."""

    def __init__(self, config: Config, vocab_size: int) -> None:
        super().__init__()
        self.bf16 = config.precision == "bf16"
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.positions: nn.Embedding | None = None
        self.cos_T1P = self.sin_T1P = None
        if config.positions == "learned":
            self.positions = nn.Embedding(config.seq_len, config.d_model)
        else:
            width = config.d_model // config.n_head
            rate_P = config.rope_base ** -(torch.arange(0, width, 2) / width)
            angle_T1P = torch.outer(torch.arange(config.seq_len), rate_P)[:, None]
            self.cos_T1P, self.sin_T1P = angle_T1P.cos(), angle_T1P.sin()
        self.head = self.tokens
        if not config.tie_embeddings:
            self.head = nn.Embedding(vocab_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = norm_of(config)

    @torch.no_grad()
    def draw(self, config: Config) -> None:
        """Draw the same weights, in the same order, as the trial's backend from this seed."""
        largest = 0.18 if config.tie_embeddings else 0.5
        table_std = min(0.02, largest / math.sqrt(config.d_model))
        residual_std = 0.02 / math.sqrt(2 * config.n_layer)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                to_residual = name.endswith(("out.weight", "down.weight"))
                std = residual_std if to_residual else 0.02
                weight.normal_(0.0, std if name.startswith("blocks.") else table_std)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats in training, else ``nll_BT`` in fp64."""
        length, turn = tokens_BT.shape[1], None
        if self.cos_T1P is not None and self.sin_T1P is not None:
            turn = self.cos_T1P[:length], self.sin_T1P[:length]
        # The meta device, on which a step is counted, has no autocast and represents CUDA.
        device_type = "cpu" if tokens_BT.device.type == "cpu" else "cuda"
        with torch.autocast(device_type, torch.bfloat16, enabled=self.bf16):
            x_BTD = self.tokens(tokens_BT)
            if self.positions is not None:
                x_BTD = x_BTD + self.positions.weight[:length]
            for block in self.blocks:
                x_BTD = block(x_BTD, turn)
            logits_NV = functional.linear(self.norm(x_BTD), self.head.weight).flatten(0, 1)
            if self.training:
                return functional.cross_entropy(logits_NV, targets_BT.flatten())
        nll_N = functional.cross_entropy(logits_NV.double(), targets_BT.flatten(), reduction="none")
        return nll_N.view_as(targets_BT)


class Steps:
    """The times and losses of steps, recorded without waiting for each."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.events: list[torch.cuda.Event] = []
        self.marks_s: list[float] = []
        self.losses: list[Tensor] = []

    def mark(self) -> None:
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self.events.append(event)
        self.marks_s.append(time.perf_counter())

    def median_ms(self) -> float:
        """Return the median over the steps after the first, as in a trial."""
        if self.cuda:
            torch.cuda.synchronize()
            steps_ms = [float(a.elapsed_time(b)) for a, b in pairwise(self.events)]
        else:
            steps_ms = [1000 * (b - a) for a, b in pairwise(self.marks_s)]
        return median(steps_ms[1:] or steps_ms)


def train(model: ReferenceGPT, batches: Batches, spec: TrialSpec, device: torch.device) -> Steps:
    """Run the training loop: forward, backward, clip, update."""
    config = spec.gpt
    schedule = Schedule(config, spec.budget, spec.horizon_steps)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": config.weight_decay},
            {"params": gains, "weight_decay": 0.0},
        ],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        fused=True,
    )
    steps = Steps(device)
    steps.mark()
    for step in range(1, (schedule.steps or 1) + 1):
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr(step, 0.0)
        tokens_BT, targets_BT = batches(step)
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.losses.append(loss.detach())
        steps.mark()
        if step % LOG_EVERY == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return steps


SHAPE = {"activation", "norm", "positions", "n_kv_head", "qk_norm", "rope_base"}
"""Knobs of the architecture that the reference has, beside those that every config has."""


def expect_plain(config: Config) -> None:
    """Refuse a config with a knob that the reference leaves out."""
    other = config.canonical().keys() & {
        name for name, field in type(config).model_fields.items() if not field.is_required()
    }
    if other - SHAPE:
        raise SystemExit(f"the reference has no {', '.join(sorted(other - SHAPE))}")


def run(spec: TrialSpec) -> TrialOk:
    """Train and score a spec."""
    config, device = spec.gpt, torch.device(spec.device)
    expect_plain(config)
    corpus = open_corpus(Path(spec.corpus_dir))
    vocab_size = corpus.info.vocab_size
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # events and peaks belong to the current device
    with device:
        model = ReferenceGPT(config, vocab_size)
    torch.manual_seed(spec.seed)
    model.draw(config)
    batches = Batches(
        corpus.train,
        seed=spec.seed,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        device=device,
    )
    setup_s = time.monotonic() - born_at()
    began = time.perf_counter()
    model.train()
    steps = train(model, batches, spec, device)
    losses = torch.stack(steps.losses).tolist()
    trained_at = time.perf_counter()
    scored = evaluate(model, corpus.heldout, seq_len=config.seq_len, vocab_size=vocab_size)
    return TrialOk(
        val_bpb=scored.bits_per_byte(corpus.info.heldout_bytes),
        val_bits_per_token=scored.bits_per_token,
        val_bytes=corpus.info.heldout_bytes,
        val_tokens=scored.tokens,
        train_loss_first=losses[0],
        train_loss_last=losses[-1],
        steps=len(losses),
        tokens=len(losses) * config.tokens_per_step,
        params=sum(p.numel() for p in model.parameters()),
        step_ms=steps.median_ms(),
        tokens_per_s=len(losses) * config.tokens_per_step / (trained_at - began),
        train_s=trained_at - began,
        eval_s=time.perf_counter() - trained_at,
        setup_s=setup_s,
        peak_mem_gib=peak_mem_gib(device),
        peak_reserved_gib=peak_reserved_gib(device),
        backend="reference",
        device=device_name(device),
        precision=config.precision,
    )


def main(spec_path: str, out: str) -> None:
    """Read the spec, write the result."""
    result = run(TrialSpec.model_validate_json(Path(spec_path).read_bytes()))
    (Path(out) / "result.json").write_text(result.model_dump_json(indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
