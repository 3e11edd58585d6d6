"""The analytic memory estimate against peaks that were measured: a published GB10's, this CPU's."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from agent.menu import load_menu
from bench.figure import Figure
from tests.support.envelopes import GB10_VOCAB, gb10_base, gb10_points
from trainer.envelope import Cell, EnvelopePoint, EnvelopeSettings, cells, fit, sweep
from trainer.memory import AnalyticMemory
from trainer.spec import Config
from trainer.supervisor import LocalExecutor

PUBLISHED = "published GB10 envelope, 354.6 M GPT, 8 points"
CPU_VOCAB = 1024


class _Quiet:
    def started(self, cell: Cell) -> None: ...
    def measured(self, point: EnvelopePoint) -> None: ...


def run() -> list[Figure]:
    """Errors of the estimate and of the fit; takes about half a minute."""
    published = gb10_points()
    estimate = _estimate(GB10_VOCAB, "megatron", "cuda")
    figures = []
    for precision in ("bf16", "fp8"):
        of_one = [point for point in published if point.precision == precision]
        figures += _figures(f"GB10 {precision}", estimate, gb10_base(), of_one, PUBLISHED)
    menu = load_menu("cpu-tiny")
    with tempfile.TemporaryDirectory() as directory, LocalExecutor() as executor:
        settings = EnvelopeSettings(
            menu=menu.name,
            menu_sha256=menu.sha256,
            base=menu.baseline,
            vocab_size=CPU_VOCAB,
            backend="torch",
            device="cpu",
            steps=4,
            warmup=1,
            threads=menu.campaign.threads,
        )
        grid = cells([4, 16, 32], [128, 256], ["bf16"])
        here = sweep(settings, grid, Path(directory), executor, _Quiet())
    note = "cpu-tiny on this CPU, resident memory, 6 points"
    return figures + _figures(
        "CPU bf16", _estimate(CPU_VOCAB, "torch", "cpu"), menu.baseline, here, note
    )


def _estimate(vocab_size: int, backend: str, device: str) -> AnalyticMemory:
    return AnalyticMemory(
        vocab_size=vocab_size, backend=backend, device=device, limit_gib=float("inf")
    )


def _figures(
    name: str,
    estimate: AnalyticMemory,
    base: Config,
    points: Sequence[EnvelopePoint],
    note: str,
) -> list[Figure]:
    measured = [(p, p.peak_mem_gib) for p in points if p.peak_mem_gib is not None]
    errors = {
        p: estimate.predict_gib(base.model_copy(update=p.cell._asdict())) - peak_gib
        for p, peak_gib in measured
    }
    worst = max(errors, key=lambda point: abs(errors[point]))
    line = fit(points, points[0].precision)
    return [
        Figure(
            f"{name}: estimate's mean error", fmean(map(abs, errors.values())), "GiB", note=note
        ),
        Figure(
            f"{name}: estimate's largest error",
            errors[worst],
            "GiB",
            note=f"{worst.cell}, measured {worst.peak_mem_gib:.2f} GiB; {note}",
        ),
        Figure(
            f"{name}: fit's largest error",
            line.max_error_gib,
            "GiB",
            "≤ 0.3",
            line.max_error_gib <= 0.3,
            note,
        ),
    ]


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name:<36} {figure.value:+.2f} {figure.unit}  {figure.note}")
