"""The largest runs of published grids, forecast from the smaller ones.

Nothing of them is kept here. ``--published DIR`` (more than once, if need be) names a checkout:

- github.com/step-law/steplaw: Li et al. 2025 (arXiv 2503.04715), 17 sizes and lengths, each the
  best of about 120 learning rates and batches (``data/dense_lr_bs_loss.csv``);
- github.com/epoch-research/analyzing-chinchilla: the 245 runs of Hoffmann et al. 2022 as Besiroglu
  et al. 2024 (arXiv 2404.10102) read them off its figure, without the five of the fewest tokens a
  parameter, as they leave out (``data/svg_extracted_data.csv``);
- github.com/mcleish7/gemstone-scaling-laws: McLeish et al. 2025 (arXiv 2502.06857), widths and
  depths that vary widely, annealed ends (``wandb_dfs/wandb_df_for_fitting_cool_end.jsonl``);
- github.com/thu-yao-01-luo/MultiPowerLaw: Luo et al. 2025 (arXiv 2503.12811), whole loss curves of
  25, 100 and 400 M parameters (``loss_curve_repo``).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.figure import Figure
from funnel.forecast.ladder.curve_shape import fit_curve_shape
from funnel.forecast.ladder.rung_runs import BinnedCurve, RungRun
from funnel.forecast.ladder.schedule_shape import ScheduleShape
from funnel.forecast.scaling_law import FinishedRun, fit_scaling_law
from trainer.spec import CurvePoint

SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Of the runs, by compute: those that a law is fitted to, before it is asked for all the others."""
STEP_LAW = "data/dense_lr_bs_loss.csv"
CHINCHILLA = "data/svg_extracted_data.csv"
GEMSTONES = "wandb_dfs/wandb_df_for_fitting_cool_end.jsonl"
CURVES = "loss_curve_repo"
BESIROGLU = {"alpha": 0.3478, "beta": 0.3658}
"""Table 1."""


def run(checkouts: Sequence[Path] | None) -> list[Figure]:
    """What there is a checkout for."""
    figures: list[Figure] = []
    for checkout in checkouts or ():
        if (checkout / STEP_LAW).exists():
            figures += _grid("Step Law", step_law(checkout))
        if (checkout / CHINCHILLA).exists():
            figures += _grid("Chinchilla", chinchilla(checkout))
            figures += _besiroglu(chinchilla(checkout))
        if (checkout / GEMSTONES).exists():
            figures += _grid("Gemstones", gemstones(checkout))
        if (checkout / CURVES).exists():
            figures += _curves(checkout / CURVES)
    return figures or [Figure("none", 0, "", note="name a checkout with --published")]


def step_law(checkout: Path) -> list[FinishedRun]:
    """The best loss of every size and length."""
    best: dict[tuple[float, float], float] = {}
    with (checkout / STEP_LAW).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key, loss = (float(row["N"]), float(row["D"])), float(row["smooth loss"])
            if loss > 0:
                best[key] = min(best.get(key, loss), loss)
    return [FinishedRun(params=n, tokens=d, loss=loss) for (n, d), loss in best.items()]


def chinchilla(checkout: Path) -> list[FinishedRun]:
    """The runs that were read off the figure."""
    with (checkout / CHINCHILLA).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    runs = [
        FinishedRun(
            params=float(row["Model Size"]),
            tokens=float(row["Training FLOP"]) / 6 / float(row["Model Size"]),
            loss=float(row["loss"]),
        )
        for row in rows
    ]
    return sorted(runs, key=lambda run: run.tokens / run.params)[5:]


def gemstones(checkout: Path) -> list[FinishedRun]:
    """Annealed ends."""
    lines = (checkout / GEMSTONES).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        FinishedRun(
            params=float(row["params_active_precise"]),
            tokens=float(row["tokens"]),
            loss=float(row["final_loss"]),
        )
        for row in rows
    ]


def _grid(name: str, runs: Sequence[FinishedRun]) -> list[Figure]:
    ordered = sorted(runs, key=lambda run: run.compute)
    errors: list[float] = []
    covered: list[bool] = []
    last: list[float] = []
    for share in SHARES:
        cut = round(share * len(ordered))
        fit = fit_scaling_law(ordered[:cut], seed=0)
        held = ordered[cut:]
        low, middle, high = fit.predict([r.params for r in held], [r.tokens for r in held])
        loss = np.array([run.loss for run in held])
        errors += np.abs(middle / loss - 1).tolist()
        covered += ((low <= loss) & (loss <= high)).tolist()
        last.append(float(abs(middle[-1] / loss[-1] - 1)))
    median, cover = 100 * float(np.median(errors)), 100 * float(np.mean(covered))
    note = (
        f"{len(runs)} runs, fitted to the smallest {SHARES[0]:.0%} to {SHARES[-1]:.0%} by compute; "
        f"the largest run of all: {', '.join(f'{100 * e:.2f}' for e in last)} %"
    )
    return [
        Figure(f"{name}: median error", median, "%", "<= 1 %", median <= 1, note),
        Figure(f"{name}: within the 95 % band", cover, "%", ">= 90 %", cover >= 90),
    ]


def _besiroglu(runs: Sequence[FinishedRun]) -> list[Figure]:
    fit = fit_scaling_law(runs, seed=0)
    spread = fit.exponents
    rows = (
        ("alpha", fit.law.alpha, spread.alpha_low, spread.alpha_high),
        ("beta", fit.law.beta, spread.beta_low, spread.beta_high),
    )
    return [
        Figure(
            f"Chinchilla: {name}",
            value,
            "",
            f"interval holds {BESIROGLU[name]}",
            low <= BESIROGLU[name] <= high,
            f"{low:.4f} to {high:.4f}; floor {fit.law.floor:.4f} (published 1.8172)",
        )
        for name, value, low, high in rows
    ]


def _curves(folder: Path) -> list[Figure]:
    figures = []
    for name in ("cosine_24000", "wsd_20000_24000", "wsdld_20000_24000"):
        small = [_curve(folder, size, name) for size in (25, 100)]
        error = _error(small, _curve(folder, 400, name))
        figures.append(_curve_figure(f"400 M by 25 and 100 M: {name}", error))
    small = [_curve(folder, 25, "cosine_24000"), _curve(folder, 100, "cosine_72000")]
    error = _error(small, _curve(folder, 400, "cosine_72000"))
    figures.append(_curve_figure("400 M by 25 M of a third the length and 100 M: cosine", error))
    return figures


def _curve_figure(name: str, error: np.ndarray) -> Figure:
    return Figure(
        name,
        100 * float(np.sqrt(np.mean(error**2))),
        "% rms",
        note=f"of the way down to its own end; worst {100 * float(np.abs(error).max()):.2f} %",
    )


def _error(small: Sequence[RungRun], large: RungRun) -> np.ndarray:
    seen = BinnedCurve.of(large)
    drawn = fit_curve_shape(small).draw(
        seen.share, large.schedule, (large.params, large.tokens), np.random.default_rng(0), 300
    )
    error: np.ndarray = seen.log_loss - np.median(drawn, axis=0)
    error -= np.mean(error[seen.share > 0.95])
    return error


def _curve(folder: Path, size: int, name: str) -> RungRun:
    steps = int(name.rsplit("_", 1)[1])
    with (folder / f"csv_{size}" / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return RungRun(
        params=size * 1e6,
        tokens_per_step=1.0,
        schedule=ScheduleShape(
            steps=steps,
            warmup_steps=2160,
            kind="cosine" if name.startswith("cosine") else "wsd",
            decay_share=1 / 6,
            lr_min_ratio=0.1,
        ),
        curve=tuple(
            CurvePoint(
                step=int(row["step"]),
                tokens=int(row["step"]),
                loss=float(row["loss"]),
                lr=float(row["lr"]),
                grad_norm=1.0,
                elapsed_s=1.0,
            )
            for row in rows
        ),
    )
