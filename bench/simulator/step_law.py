"""Step Law's published grids: learning rate and batch of 17 sizes and lengths, a world each.

Li et al. 2025 (arXiv 2503.04715), from a checkout of github.com/step-law/steplaw; nothing of it is
kept here. A menu of two knobs is no menu to tell searches apart on, but a bad search fails here,
too. No run was made twice, so the noise is what a smooth surface leaves unexplained.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from agent.menu.files import parse_menu
from bench.simulator.runs import KnownRun, RunTable
from trainer.spec import gpt

FILE = "data/dense_lr_bs_loss.csv"
MENU = """\
name = "step-law h{h} l{numl} D{tokens:g}B"
doc = "Learning rate and batch of one size and length of Step Law's grids."
knobs.lr = {{ type = "float", low = {low!r}, high = {high!r}, scale = "log", default = {lr!r} }}
knobs.batch_size = {{ type = "int", low = {least}, high = {most}, scale = "log", default = {bs} }}

[constants]
n_layer = {numl}
n_head = {numh}
d_model = {h}
d_ff = {ffnh}
seq_len = 2048
activation = "swiglu"
norm = "rmsnorm"
positions = "rotary"
tie_embeddings = false
lr_warmup = 2000
lr_min_ratio = 0.0
grad_clip = 1.0
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
precision = "bf16"

[campaign]
budget = "60 steps"
"""
"""The steps are nominal: a config is told apart by its knobs alone."""


def step_law(checkout: Path) -> list[RunTable]:
    """A table for every size and length. A night starts in the corner of the least rate and the
    largest batch, where nothing diverges and little is learned."""
    groups = defaultdict(list)
    with (checkout / FILE).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if float(row["smooth loss"]) > 0:
                groups[row["h"], row["ffnh"], row["numh"], row["numl"], row["D"]].append(row)
    return [_table(key, rows) for key, rows in sorted(groups.items())]


def _table(key: tuple[str, ...], rows: list[dict[str, str]]) -> RunTable:
    h, ffnh, numh, numl, tokens = key
    rates = sorted({float(row["lr"]) for row in rows})
    batches = sorted({int(row["bs"]) for row in rows})
    text = MENU.format(
        h=h,
        ffnh=ffnh,
        numh=numh,
        numl=numl,
        tokens=float(tokens) / 1e9,
        low=rates[0],
        high=rates[-1],
        lr=rates[0],
        least=batches[0],
        most=batches[-1],
        bs=batches[-1],
    )
    menu = parse_menu(text, "step-law")
    runs = [
        KnownRun(
            config=gpt(
                menu.apply(menu.baseline, {"lr": float(row["lr"]), "batch_size": int(row["bs"])})
            ),
            seed=0,
            score=float(row["smooth loss"]),
            train_s=1.0,
        )
        for row in rows
    ]
    return RunTable(menu.name, menu, runs, shares_seeds=False)
