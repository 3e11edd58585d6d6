"""Predictions from one published sweep against another published run's shapes.

The sweep is that of a 354.6 M GPT on a GB10 (16 points). Ten shapes around it were trained in the
published night of 50 turns on the same machine (github.com/manavsehgal/ai-field-notes, articles/
autoresearch-agent-loop/evidence/trajectory.jsonl: 16 × 1024 tokens, fp8, 60 steps), with
parameters, mean step time and peak memory. None of them had a part in the fit but the sweep's
own shape.

The goals were set before the comparison was made: memory within 10 %, time within 15 %.
"""

from __future__ import annotations

from bench.figure import Figure
from tests.support.envelopes import GB10_VOCAB, gb10_base, gb10_envelope
from trainer.accounting.devices import describe
from trainer.envelope.needs import Need, counted_seconds, needs
from trainer.envelope.rail import FittedMemory
from trainer.spec import Config, make_config

MEMORY_GOAL = 0.10
TIME_GOAL = 0.15
SHAPES = (
    # n_head, d_model, d_ff, parameters in millions, ms a step, peak GiB, turns
    (16, 1024, 4096, 354.6, 1226.6, 24.33, 7),
    (8, 1024, 4096, 354.6, 1216.9, 24.32, 6),
    (32, 1024, 4096, 354.6, 1266.0, 24.36, 6),
    (4, 1024, 4096, 354.6, 1423.0, 31.06, 3),
    (16, 256, 4096, 69.78, 644.1, 17.44, 1),
    (16, 768, 4096, 247.08, 1027.6, 21.98, 7),
    (16, 1536, 4096, 607.4, 1720.2, 29.42, 10),
    (16, 2048, 4096, 910.53, 2188.4, 34.83, 6),
    (16, 1024, 6144, 455.27, 1327.7, 27.37, 2),
    (16, 1024, 8192, 555.93, 1462.5, 30.33, 2),
)


def run() -> list[Figure]:
    """A figure for each shape and quantity, and their sums; takes ten seconds."""
    figures = []
    memory_errors, time_errors = [], []
    for (heads, width, hidden, params_m, step_ms, peak_gib, turns), need in predictions():
        name = f"d_model {width}, d_ff {hidden}, {heads} heads"
        memory, time = need.peak_gib / peak_gib - 1, (need.step_ms or 0.0) / step_ms - 1
        memory_errors.append(abs(memory))
        time_errors.append(abs(time))
        note = f"{params_m:g} M parameters, {turns} turns"
        figures += [
            _figure(f"{name}: memory", memory, MEMORY_GOAL, f"{peak_gib} GiB measured; {note}"),
            _figure(f"{name}: time", time, TIME_GOAL, f"{step_ms} ms measured; {note}"),
        ]
    for what, errors, goal in (
        ("memory", memory_errors, MEMORY_GOAL),
        ("time", time_errors, TIME_GOAL),
    ):
        within = sum(error <= goal for error in errors)
        figures.append(
            Figure(
                f"shapes whose {what} was within {goal:.0%}",
                within,
                f"of {len(errors)}",
                f"{len(errors)}",
                within == len(errors),
                f"mean error {sum(errors) / len(errors):.1%}",
            )
        )
    return figures


def predictions() -> list[tuple[tuple[int, int, int, float, float, float, int], Need]]:
    """Each shape, and what is predicted of it from the sweep alone."""
    envelope = gb10_envelope()
    memory = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=envelope.limit.gib)
    found = needs(
        [_config(shape) for shape in SHAPES],
        memory,
        envelope,
        GB10_VOCAB,
        counted_seconds(describe("gb10")),
    )
    return list(zip(SHAPES, found, strict=True))


def _config(shape: tuple[int, int, int, float, float, float, int]) -> Config:
    heads, width, hidden, *_ = shape
    return make_config(
        gb10_base().canonical()
        | {"n_head": heads, "d_model": width, "d_ff": hidden}
        | {"batch_size": 16, "seq_len": 1024, "precision": "fp8"}
    )


def _figure(name: str, error: float, goal: float, note: str) -> Figure:
    return Figure(name, 100 * error, "%", f"within {goal:.0%}", abs(error) <= goal, note)


if __name__ == "__main__":
    for figure in run():
        print(
            f"{figure.name:<44} {figure.value:+7.1f} {figure.unit} {figure.goal_text} {figure.note}"
        )
