"""Predict, from the accounting, each figure that no GPU has measured yet.

    python -m bench.gpu_predictions [--write]

prints the table "GPU: not yet measured" of bench/RESULTS.md, each line with its prediction. With
``--write`` it puts the table there, so that the first measurement can refute it.

The predictions assume the devices' rates (:mod:`trainer.accounting.work`), that no kernel waits
for another or for the host, and the constants below, which cannot be counted.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import wrap

import torch

from bench.gpu_session import gpu_plan
from bench.reference_accounting import count_reference_scoring, count_reference_step
from trainer.accounting.counter import Counter
from trainer.accounting.work import DEVICES, DeviceDescription, StepCounts
from trainer.backends.torch_gpt import TorchGPT
from trainer.envelope.counted_step import META, count_step
from trainer.envelope.prediction import Prediction
from trainer.memory.estimate import AnalyticMemory
from trainer.spec import Config
from trainer.training.scoring import TOKENS_PER_CUDA_PASS

RESULTS = Path(__file__).with_name("RESULTS.md")
HEADING = "## GPU: not yet measured"
VOCAB_SIZE = 50257
BYTES_PER_TOKEN = 4.0
"""Bytes per token of the held-out text; assumed."""
WARM_START_S = 3.0
"""Time of a trial from the fork server to its first step, plus that from its last step to its
result. It is assumed, as are the next two."""
COLD_START_S = 7.0
REFERENCE_START_S = 7.0
"""Time to import torch, start CUDA and draw the weights."""
PUBLISHED_TOKENS_PER_S = {4: 12_641, 8: 12_819, 16: 13_626}
"""Published rates of Megatron-Core in bf16 at sequences of 1024 on a GB10, by batch size."""
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table."""

    goal: str
    on: str
    prediction: str
    command: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A predicted trial of the product or of the reference."""

    step_s: float
    peak_bytes: int
    scoring_s: float

    def seconds(self, steps: int, start_s: float) -> float:
        """Return the time from its spec to its result."""
        return start_s + steps * self.step_s + self.scoring_s


def lines() -> list[Line]:
    """Return the table's lines, in the order of the goals."""
    h200, same = DEVICES["h200"], "the same"
    loop = "`python -m bench.gpu --loop`"
    return [
        Line(
            "steady state ≥ 55 % of the measured bf16 matmul ceiling, 354 M shape, 16 × 1024",
            "Hopper",
            _steady(h200),
            "`python -m bench.gpu --write`",
        ),
        Line("tokens/s ≥ 1.5× the hand-rolled reference", "Hopper", _speed(h200), same),
        Line("peak memory ≤ half the reference's", "Hopper", _peak(), same),
        Line(
            "60 steps and evaluation, spec to val_bpb, ≥ 1.5× as fast as the reference, as in a"
            " campaign and both cold",
            "Hopper",
            _trial(h200),
            same,
        ),
        Line("bf16 against fp8, torch", "Hopper", _fp8(h200), same),
        Line("compiled against eager; torch against megatron", "any", "none: not counted", same),
        Line("the memory estimate's error", "any", _estimate(), same),
        Line("all of it within 8 minutes", "Hopper", _session(h200), same),
        *_lines_of_gb10(DEVICES["gb10"]),
        Line("ten iterations with rows and telemetry", "any", _loop(h200), loop),
        Line(
            "the loss in chunks against Liger's and torch's own; LayerNorm's gain in bf16 against"
            " fp32",
            "any",
            "none",
            "not written",
        ),
        Line(
            "memory by parallel layout and the pre-flight's thresholds",
            "8 GPUs",
            "none",
            "`handoff/preflight.sh`",
        ),
    ]


def _lines_of_gb10(gb10: DeviceDescription) -> list[Line]:
    return [
        Line(
            "torch against megatron in the published layout",
            "GB10",
            _on_gb10(gb10, 4),
            "`autoresearch compare --backends torch,megatron --menu spark-354m --batch 4"
            " --precision bf16 --device cuda`",
        ),
        Line(
            "the envelope, batch × sequence × precision",
            "GB10",
            "; ".join(_on_gb10(gb10, batch) for batch in (8, 16))
            + "; all points: `autoresearch envelope --dry --menu spark-354m --on gb10`",
            "`autoresearch envelope --menu spark-354m --batch 2,4,8,16 --seq 1024,2048 --precision"
            " bf16,fp8 --backend megatron --device cuda`",
        ),
    ]


def table() -> str:
    """Return the table in Markdown, followed by its assumptions."""
    rows = [
        "| goal | on | predicted | command |",
        "| --- | --- | --- | --- |",
        *(f"| {line.goal} | {line.on} | {line.prediction} | {line.command} |" for line in lines()),
        "",
        "Predicted by `python -m bench.gpu_predictions` from steps counted on the meta device.",
        f"Assumed: a trial starts and ends in {WARM_START_S:g} s warm and {COLD_START_S:g} s cold,",
        f"the reference in {REFERENCE_START_S:g} s; {BYTES_PER_TOKEN:g} bytes a token; no kernel"
        " waits for another or for the host.",
        *(wrapped for d in DEVICES.values() for wrapped in wrap(f"{d.name}: {d.source}.", 110)),
    ]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the table, and write it to the results with --write."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_predictions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--write", action="store_true", help="put it into bench/RESULTS.md")
    options = parser.parse_args()
    found = table()
    print(found, end="")
    if options.write:
        RESULTS.write_text(with_table(RESULTS.read_text("utf-8"), found), "utf-8")


def with_table(results: str, found: str) -> str:
    """Return the results with this table in place of the section's."""
    before, heading, rest = results.partition(HEADING)
    intro, _, old = rest.partition("\n| goal |")
    _, next_heading, after = old.partition("\n## ")
    return f"{before}{heading}{intro}\n{found}{next_heading}{after}"


# --- predictions --------------------------------------------------------------------------------


def _steady(device: DeviceDescription) -> str:
    row = _predicted("bf16", 16, device)
    return (
        f"{row.utilisation_pct:.0f} % of {device.ceiling_tflops:g} TFLOP/s: {row.step_ms:.0f} ms a"
        f" step, {row.tokens_per_s:,.0f} tokens/s"
    )


def _speed(device: DeviceDescription) -> str:
    ours, reference = (device.seconds(counts) for counts in (_counts("bf16", 16), _reference()))
    return f"{reference / ours:.2f} ×: {1e3 * ours:.0f} against {1e3 * reference:.0f} ms a step"


def _peak() -> str:
    ours, reference = _counts("bf16", 16).peak / GIB, _reference().peak / GIB
    return f"{ours / reference:.2f} ×: {ours:.1f} against {reference:.1f} GiB"


def _trial(device: DeviceDescription) -> str:
    steps = gpu_plan("cuda", 1).steps
    ours, reference = _ours(device), _by_hand(device)
    by_hand_s = reference.seconds(steps, REFERENCE_START_S)
    warm_s, cold_s = (ours.seconds(steps, start) for start in (WARM_START_S, COLD_START_S))
    return (
        f"{by_hand_s / warm_s:.2f} × in a campaign, {by_hand_s / cold_s:.2f} × both cold:"
        f" {by_hand_s:.1f} against {warm_s:.1f} and {cold_s:.1f} s, of which scoring"
        f" {reference.scoring_s:.1f} against {ours.scoring_s:.1f} s"
    )


def _fp8(device: DeviceDescription) -> str:
    bf16, fp8 = (device.seconds(_counts(precision, 16)) for precision in ("bf16", "fp8"))
    return f"fp8 {bf16 / fp8:.2f} × bf16's tokens/s, {1e3 * fp8:.0f} ms a step"


def _estimate() -> str:
    config, counted = _config("bf16", 16), _counts("bf16", 16).peak / GIB
    estimate = AnalyticMemory(
        vocab_size=VOCAB_SIZE, backend="torch", device="cuda", limit_gib=float("inf")
    ).predict_gib(config)
    apart_pct = 100 * abs(estimate / counted - 1)
    return f"torch bf16 {apart_pct:.1f} % from what is counted; workspaces come on top"


def _session(device: DeviceDescription) -> str:
    plan = gpu_plan("cuda", 3)
    ours = _ours(device).seconds(plan.steps, WARM_START_S)
    by_hand = _by_hand(device).seconds(plan.steps, REFERENCE_START_S)
    return (
        f"{3 * (2 * ours + by_hand):.0f} s for three laps of bf16, fp8 and the reference; compiled"
        " and megatron on top"
    )


def _on_gb10(device: DeviceDescription, batch: int) -> str:
    row = _predicted("bf16", batch, device)
    published = PUBLISHED_TOKENS_PER_S[batch]
    return (
        f"torch bf16 b{batch} × 1024 {row.tokens_per_s:,.0f} tokens/s ({published:,} published for"
        f" Megatron-Core), {row.peak_gib:.1f} GiB"
    )


def _loop(device: DeviceDescription) -> str:
    trial_s = _ours(device).seconds(gpu_plan("cuda", 1).steps, WARM_START_S)
    return f"{trial_s:.0f} s a trial of the baseline's shape on {device.name}"


# --- counts -------------------------------------------------------------------------------------


def _config(precision: str, batch: int) -> Config:
    changes = {"precision": precision, "batch_size": batch}
    return gpu_plan("cuda", 1).config.model_copy(update=changes)


@cache
def _counts(precision: str, batch: int) -> StepCounts:
    return count_step(_config(precision, batch), VOCAB_SIZE)


@cache
def _reference() -> StepCounts:
    return count_reference_step(_config("bf16", 16), VOCAB_SIZE)


def _predicted(precision: str, batch: int, device: DeviceDescription) -> Prediction:
    config = _config(precision, batch)
    return Prediction.of(_counts(precision, batch), config, VOCAB_SIZE, device)


def _count_scoring(config: Config) -> StepCounts:
    """Count one pass of the evaluation, with the weights' copies already made."""
    counter = Counter()
    shape = (max(1, TOKENS_PER_CUDA_PASS // config.seq_len), config.seq_len)
    with counter.watching(), torch.no_grad():
        model = TorchGPT(config, VOCAB_SIZE, META)
        model.eval()
        counter.head_weight(model.head_VD)
        tokens_BT, targets_BT = (torch.empty(shape, dtype=torch.int64, device=META) for _ in "ab")
        model(tokens_BT, targets_BT)
        with counter.phase("forward"):
            model(tokens_BT, targets_BT).sum(dtype=torch.float64)
    return counter.counts()


@cache
def _ours(device: DeviceDescription) -> Trial:
    counts = _counts("bf16", 16)
    one_pass_s = device.seconds(_count_scoring(_config("bf16", 16)))
    scoring_s = one_pass_s * _heldout_tokens() / TOKENS_PER_CUDA_PASS
    return Trial(device.seconds(counts), counts.peak, scoring_s)


@cache
def _by_hand(device: DeviceDescription) -> Trial:
    counts = _reference()
    one_pass, tokens = count_reference_scoring(_config("bf16", 16), VOCAB_SIZE)
    scoring_s = device.seconds(one_pass) * _heldout_tokens() / tokens
    return Trial(device.seconds(counts), counts.peak, scoring_s)


def _heldout_tokens() -> float:
    return gpu_plan("cuda", 1).heldout_bytes / BYTES_PER_TOKEN


if __name__ == "__main__":
    main()
