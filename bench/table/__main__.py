"""``python -m bench.table`` makes the table, and goes on where it was stopped.

Ctrl-C, a kill or a power cut loses the running trials and nothing else. The processes run at the
lowest priority, so that the machine stays usable; their times are no measure of speed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from agent.search.first_row import hardware
from agent.settings.campaign import CampaignSettings
from agent.workbench.corpora import prepared_corpus
from bench.table.plan import BLOCKS, SHORT_STEPS, Job, Plan
from bench.table.store import TableStore, TableTrial
from trainer.corpus import Corpus
from trainer.executors.local import LocalExecutor
from trainer.isolation.trial_files import read_curve
from trainer.spec import Budget, Limits, TrialOk, TrialSpec

WALL_S = 7200.0
"""Generous, since the lowest priority may wait long for a core."""


def main(
    hours: Annotated[float, typer.Option(help="Stop after this long.")] = 12.0,
    workers: Annotated[int, typer.Option(min=1, help="Trials at a time.")] = 2,
    work: Annotated[Path, typer.Option(help="Where the journal grows.")] = Path("runs/table"),
    publish: Annotated[bool, typer.Option("--publish", help="Only fold in what is there.")] = False,
) -> None:
    """Make the trials that are missing; publish them as Parquet at the end."""
    store = TableStore(work / "trials.jsonl")
    if not publish:
        with contextlib.suppress(AttributeError, PermissionError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        _Maker(store, workers, time.monotonic() + 3600 * hours).run()
    typer.echo(f"{store.publish()} trials published")


class _Maker:
    """Works through the plan, block by block."""

    def __init__(self, store: TableStore, workers: int, until: float) -> None:
        menu = load_menu("cpu-tiny")
        self._settings = new_settings(menu, "cpu-tiny", {"threads": 1})
        self._corpus = prepared_corpus(self._settings, Console(stderr=True))
        self._plan = Plan(menu, Budget(amount=SHORT_STEPS))
        self._store = store
        self._workers = workers
        self._until = until
        self._cpu = hardware()["cpu"]

    def run(self) -> None:
        for number in range(BLOCKS):
            if not self._make(self._plan.block(number, self._store.trials)):
                return
            if not self._make(self._plan.second_part(self._store.trials)):
                return
            typer.echo(f"block {number + 1} of {BLOCKS}: {len(self._store.trials)} trials")
        self._make(self._plan.third_part(self._store.trials))

    def _make(self, jobs: Iterable[Job]) -> bool:
        """Those that are missing; False where time ran out before the last."""
        missing = [job for job in jobs if job.key not in self._store.trials]
        shares = [missing[i :: self._workers] for i in range(self._workers)]
        with ThreadPoolExecutor(self._workers) as pool:
            for ended in as_completed(
                [pool.submit(self._work, share) for share in shares if share]
            ):
                ended.result()
        return all(job.key in self._store.trials for job in missing)

    def _work(self, jobs: list[Job]) -> None:
        with LocalExecutor() as executor:
            for job in jobs:
                if time.monotonic() > self._until:
                    return
                self._store.add(self._trial(executor, job))

    def _trial(self, executor: LocalExecutor, job: Job) -> TableTrial:
        spec = spec_of(job, self._settings, self._corpus)
        with tempfile.TemporaryDirectory() as scratch:
            result = executor.run(spec, Path(scratch)).result
            loss = tuple(point.loss for point in read_curve(Path(scratch)))
        ok = result if isinstance(result, TrialOk) else None
        return TableTrial(
            role=job.role,
            knobs=self._plan.knobs_of(job.config),
            config_hash=job.config.config_hash,
            seed=job.seed,
            steps=job.steps,
            status=result.status,
            val_bpb=ok and ok.val_bpb,
            params=ok and ok.params,
            train_s=ok and ok.train_s,
            loss=loss,
            cpu=self._cpu,
            torch=torch.__version__,
        )


def spec_of(job: Job, settings: CampaignSettings, corpus: Corpus) -> TrialSpec:
    """The trial as a campaign would run it, on one thread."""
    return TrialSpec(
        trial_id="t",
        config=job.config,
        seed=job.seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=Budget(amount=job.steps),
        horizon_steps=settings.horizon_steps,
        backend=settings.backend,
        device=settings.device,
        threads=settings.threads,
        limits=Limits(wall_s=WALL_S),
    )


if __name__ == "__main__":
    typer.run(main)
