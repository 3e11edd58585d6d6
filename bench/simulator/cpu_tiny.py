"""The table of real trials of the cpu-tiny menu (:mod:`bench.table`)."""

from __future__ import annotations

import json
from pathlib import Path

from agent.menu.files import load_menu
from autoresearch.errors import CampaignError
from bench.simulator.runs import KnownRun, RunTable
from bench.table.plan import SHORT_STEPS
from bench.table.store import PUBLISHED, TableStore
from trainer.spec import gpt

LEAST_CONFIGS = 40


def cpu_tiny(journal: Path, published: Path = PUBLISHED) -> RunTable:
    """Its trials of 60 steps, those published and those of a journal that is still growing.

    :raises CampaignError: where there are too few to make a world of.
    """
    menu = load_menu("cpu-tiny")
    trials = TableStore(journal, published).trials.values()
    runs = [
        KnownRun(
            config=gpt(menu.apply(menu.baseline, json.loads(trial.knobs))),
            seed=trial.seed,
            score=trial.val_bpb,
            train_s=trial.train_s or 0.0,
            losses=trial.loss,
        )
        for trial in sorted(trials, key=lambda trial: trial.key)
        if trial.steps == SHORT_STEPS
    ]
    table = RunTable("cpu-tiny", menu, runs, shares_seeds=True)
    if len(table.means) < LEAST_CONFIGS:
        raise CampaignError(
            f"the table of trials has {len(table.means)} configs, too few to make a world of; make "
            f"more with: python -m bench.table, or point to its journal with --table (read: "
            f"{journal})"
        )
    return table
