"""A hand-written plain GPT and its training loop, as a reference to measure against.

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
from trainer.spec import Config, TrialOk, TrialSpec
from trainer.training.child import born_at
from trainer.training.schedule import Batches, Schedule
from trainer.training.scoring import evaluate

LOG_EVERY = 10


class Attention(nn.Module):
    """Causal self-attention with as many heads of keys as of queries."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.out = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, length, width = x_BTD.shape
        q_BHTK, k_BHTK, v_BHTK = (
            part.view(batch, length, self.n_head, width // self.n_head).transpose(1, 2)
            for part in self.qkv(x_BTD).split(width, dim=2)
        )
        y_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        projected: Tensor = self.out(y_BHTK.transpose(1, 2).reshape(batch, length, width))
        return projected


class Block(nn.Module):
    """Attention and a feed-forward network, each after a norm and added to the residual stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.d_model, bias=False)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.d_model, bias=False)
        self.up = nn.Linear(config.d_model, config.d_ff, bias=False)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.attention(self.norm_1(x_BTD))
        added: Tensor = x_BTD + self.down(functional.gelu(self.up(self.norm_2(x_BTD))))
        return added


class ReferenceGPT(nn.Module):
    """Learned positions, LayerNorm, GELU, no biases, the head tied to the embedding."""

    def __init__(self, config: Config, vocab_size: int) -> None:
        super().__init__()
        self.bf16 = config.precision == "bf16"
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.positions = nn.Embedding(config.seq_len, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.d_model, bias=False)

    @torch.no_grad()
    def draw(self, config: Config) -> None:
        """Draw the same weights, in the same order, as the trial's backend from this seed."""
        table_std = min(0.02, 0.18 / math.sqrt(config.d_model))
        residual_std = 0.02 / math.sqrt(2 * config.n_layer)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                to_residual = name.endswith(("out.weight", "down.weight"))
                std = residual_std if to_residual else 0.02
                weight.normal_(0.0, std if name.startswith("blocks.") else table_std)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Return the mean negative log-likelihood in nats in training, else ``nll_BT`` in fp64."""
        place_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        # The meta device, on which a step is counted, has no autocast and represents CUDA.
        device_type = "cpu" if tokens_BT.device.type == "cpu" else "cuda"
        with torch.autocast(device_type, torch.bfloat16, enabled=self.bf16):
            x_BTD = self.tokens(tokens_BT) + self.positions(place_T)
            for block in self.blocks:
                x_BTD = block(x_BTD)
            logits_NV = functional.linear(self.norm(x_BTD), self.tokens.weight).flatten(0, 1)
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


def _expect_plain(config: Config) -> None:
    plain = (config.activation, config.norm, config.positions, config.tie_embeddings)
    other = config.canonical().keys() & {
        name for name, field in type(config).model_fields.items() if not field.is_required()
    }
    if plain != ("gelu", "layernorm", "learned", True) or other:
        raise SystemExit(f"the reference is one plain GPT, and this config is another: {plain}")


def run(spec: TrialSpec) -> TrialOk:
    """Train and score a spec."""
    config, device = spec.gpt, torch.device(spec.device)
    _expect_plain(config)
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
