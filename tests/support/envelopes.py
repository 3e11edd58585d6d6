"""Provide the published envelope, and settings to measure a tiny one."""

from typing import Any

from tests.support.configs import config
from trainer.envelope.points import EnvelopePoint, EnvelopeSettings
from trainer.schema import Config

GB10_VOCAB = 50257
GB10_SEQ_LENS = (1024, 2048)
GB10_BATCHES = (2, 4, 8, 16)
GB10_PEAK_GIB = {
    "bf16": {1024: (5.26, 7.94, 13.83, 25.63), 2048: (7.95, 13.85, 25.65, 49.24)},
    "fp8": {1024: (5.60, 8.03, 13.49, 24.33), 2048: (8.05, 13.52, 24.34, 46.06)},
}
GB10_TOKENS_PER_S = {
    "bf16": {1024: (11044, 12641, 12819, 13626), 2048: (12422, 12729, 13036, 13036)},
    "fp8": {1024: (11944, 13462, 13777, 14266), 2048: (12873, 13202, 13641, 13370)},
}
"""The published GB10 envelope in tokens per second, by precision, sequence length and batch size.

The model is a 354.6 M GPT (24 layers, d_model 1024, d_ff 4096, 16 heads, tied embeddings, learned
positions) in Megatron-Core 0.17.0rc0 with TransformerEngine 2.14. Each point took 30 steps, of
which 5 are not counted.
"""


def gb10_base() -> Config:
    """Return the model of the published envelope."""
    return config(
        n_layer=24,
        n_head=16,
        d_model=1024,
        d_ff=4096,
        batch_size=16,
        seq_len=1024,
        precision="fp8",
    )


def gb10_points() -> tuple[EnvelopePoint, ...]:
    """Return the published numbers as the sweep would have recorded them."""
    return tuple(
        point(
            precision=precision,
            seq_len=seq_len,
            batch_size=batch_size,
            peak_mem_gib=GB10_PEAK_GIB[precision][seq_len][i],
            tokens_per_s=GB10_TOKENS_PER_S[precision][seq_len][i],
            step_ms=1e3 * batch_size * seq_len / GB10_TOKENS_PER_S[precision][seq_len][i],
            params=354_551_808,
            device_name="NVIDIA GB10",
        )
        for precision in GB10_PEAK_GIB
        for seq_len in GB10_SEQ_LENS
        for i, batch_size in enumerate(GB10_BATCHES)
    )


def point(**changes: Any) -> EnvelopePoint:
    """Return a measured point, with any field changed."""
    fields: dict[str, Any] = {
        "batch_size": 2,
        "seq_len": 16,
        "precision": "fp32",
        "status": "ok",
        "step_ms": 10.0,
        "tokens_per_s": 3200.0,
        "peak_mem_gib": 0.5,
        "params": 1000,
        "device_name": "a processor",
        "wall_s": 1.0,
        **changes,
    }
    return EnvelopePoint.model_validate(fields)


def failed(**changes: Any) -> EnvelopePoint:
    """Return a point that ran out of memory, with any field changed."""
    return point(
        **{
            "status": "oom",
            "message": "out of memory",
            "step_ms": None,
            "tokens_per_s": None,
            "peak_mem_gib": None,
            "params": None,
            "device_name": None,
            **changes,
        }
    )


def settings(**changes: Any) -> EnvelopeSettings:
    """Return the settings of a sweep that takes a second per point."""
    fields: dict[str, Any] = {
        "menu": "toy",
        "menu_sha256": "0" * 64,
        "base": config(
            n_layer=1, n_head=2, d_model=32, d_ff=64, batch_size=2, seq_len=16, precision="fp32"
        ),
        "vocab_size": 300,
        "backend": "torch",
        "device": "cpu",
        "steps": 4,
        "warmup": 2,
        "threads": 1,
        "wall_s": 60,
        **changes,
    }
    return EnvelopeSettings.model_validate(fields)
