"""``python -m trainer.parallel.worker SCRATCH``: one rank, under torchrun, or the only one."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from trainer.isolation.process_tree import die_with_parent
from trainer.parallel.job import (
    JOB_FILE,
    LOSSES_FILE,
    SINGLE,
    Layout,
    LayoutLosses,
    ParallelJob,
    RankFailure,
    failure_file,
)
from trainer.spec import Budget
from trainer.training.schedule import Schedule

TRAIN_TOKENS = 1 << 16


def main(scratch: Path) -> int:
    """Train every layout of the job; rank 0 writes what came of each."""
    die_with_parent(os.getppid())  # torchrun starts its workers in sessions of their own
    job = ParallelJob.model_validate_json((scratch / JOB_FILE).read_bytes())
    # Where whoever started this is gone, nobody else ends a rank that waits for another.
    signal.setitimer(signal.ITIMER_REAL, job.deadline_s)
    rank, layout = _Rank(job), SINGLE
    try:
        rank.join()
        for layout in job.layouts:
            losses = rank.train(layout)
            if rank.number == 0:
                with (scratch / LOSSES_FILE).open("a", encoding="utf-8") as file:
                    file.write(losses.model_dump_json() + "\n")
        rank.leave()
    except Exception as error:  # noqa: BLE001 (the edge of a process)
        _last_words(scratch, rank.number, layout, error)
        return 1
    return 0


class _Rank:
    """This process among the others."""

    def __init__(self, job: ParallelJob) -> None:
        import torch  # noqa: PLC0415 (under the timer set above)

        self._job = job
        self.number = 0
        self._device = torch.device("cpu")
        torch.set_num_threads(1)

    def join(self) -> None:
        """Meet the other ranks, whom torchrun's variables name."""
        import torch  # noqa: PLC0415
        import torch.distributed as dist  # noqa: PLC0415

        if self._job.world_size > 1:
            timeout = timedelta(seconds=self._job.deadline_s)
            backend = "nccl" if self._job.device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timeout)
            self.number = dist.get_rank()
        if self._job.device == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = False
            self._device = torch.device("cuda", self.number)
            torch.cuda.set_device(self._device)

    def train(self, layout: Layout) -> LayoutLosses:
        """The job's steps under this layout."""
        import numpy as np  # noqa: PLC0415

        from trainer.parallel.rank_model import RankModel  # noqa: PLC0415
        from trainer.training.data import Batches  # noqa: PLC0415

        job, config = self._job, self._job.config
        # Words are as unequal as in text, so that there is something to learn.
        words = np.random.default_rng(job.seed).zipf(1.3, TRAIN_TOKENS) % job.vocab_size
        batches = Batches(
            words,
            seed=job.seed,
            batch_size=config.batch_size,
            seq_len=config.seq_len,
            device=self._device,
        )
        schedule = Schedule(config, Budget(amount=job.steps), horizon_steps=None)
        model = RankModel(job, layout, self._device)
        rows = model.rows(config.batch_size)
        seen = []
        for step in range(1, job.steps + 1):
            tokens_BT, targets_BT = batches(step)
            seen.append(model.step(tokens_BT[rows], targets_BT[rows], schedule.lr(step, 0.0)))
        losses, norms = zip(*seen, strict=True)
        return LayoutLosses(name=layout.name, losses=losses, grad_norms=norms)

    def leave(self) -> None:
        import torch.distributed as dist  # noqa: PLC0415

        if self._job.world_size > 1:
            dist.destroy_process_group()


def _last_words(scratch: Path, rank: int, layout: Layout, error: Exception) -> None:
    root = error
    while isinstance(root.__cause__, Exception):  # torch's pipelines wrap what went wrong
        root = root.__cause__
    lines = str(root).strip().splitlines() or [""]
    failure = RankFailure(
        rank=rank,
        layout=layout.name,
        message=f"{type(root).__name__}: {lines[0]}"[:300],
        at_s=time.time(),
    )
    failure_file(scratch, rank).write_text(failure.model_dump_json(), "utf-8")
    sys.excepthook(type(error), error, error.__traceback__)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
