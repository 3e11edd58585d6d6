"""Count a training step of spark-354m's shape, operator by operator, without a GPU.

    python -m bench.accounting [--precision fp8] [--reference]

Use it to compare the counts before and after a change of the kernels.
"""

from __future__ import annotations

import argparse
from collections import Counter as Tally

from bench.gpu_session import gpu_plan
from bench.reference_accounting import count_reference_step
from trainer.accounting.work import StepCounts
from trainer.envelope.counted_step import count_step

VOCAB_SIZE = 50257


def main() -> None:
    """Count the step and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.accounting", description=__doc__)
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp8"], default="bf16")
    parser.add_argument("--reference", action="store_true", help="of the one written by hand")
    options = parser.parse_args()
    config = gpu_plan("cuda", 1).config.model_copy(update={"precision": options.precision})
    count = count_reference_step if options.reference else count_step
    for line in listing(count(config, VOCAB_SIZE)):
        print(line)


def listing(counts: StepCounts) -> list[str]:
    """Return lines of operators, sorted by the bytes they move, and the totals."""
    moved: Tally[tuple[str, str, str]] = Tally()
    called: Tally[tuple[str, str, str]] = Tally()
    launched: Tally[tuple[str, str, str]] = Tally()
    for work, calls in counts.calls.items():
        key = (work.phase, work.operator, work.kind)
        moved[key] += calls * work.moved_bytes
        called[key] += calls
        launched[key] += calls * work.kernels
    lines = [f"{'GB':>8} {'calls':>6} {'kernels':>7}"]
    lines += [
        f"{amount / 1e9:8.3f} {called[key]:6} {launched[key]:7}  {' '.join(key)}"
        for key, amount in moved.most_common()
    ]
    peaks = ", ".join(f"{phase} {size / 2**30:.2f}" for phase, size in counts.peak_bytes.items())
    lines += [
        f"{counts.moved_bytes / 1e9:.1f} GB moved, of which elementwise"
        f" {counts.elementwise_bytes / 1e9:.1f}; {counts.kernels} kernels;"
        f" {counts.flops / 1e12:.2f} TFLOP",
        f"peak GiB: {peaks}; held {counts.held_bytes / 2**30:.2f}",
    ]
    lines += [
        f"misaligned, {calls} times: {work.operator} {work.shape}: {', '.join(work.misaligned)}"
        for work, calls in counts.misaligned.items()
    ]
    return lines


if __name__ == "__main__":
    main()
