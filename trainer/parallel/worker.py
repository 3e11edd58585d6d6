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


def main(scratch: Path) -> int:
    """Train every layout of the job; rank 0 writes the results."""
    die_with_parent(os.getppid())  # torchrun starts its workers in sessions of their own
    job = ParallelJob.model_validate_json((scratch / JOB_FILE).read_bytes())
    # If the starting process is gone, nothing else ends a rank that waits for another.
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
    """This process among the ranks."""

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
        """Train the job's steps under this layout."""
        from trainer.parallel.rank_model import train  # noqa: PLC0415

        return train(self._job, layout, self._device)

    def leave(self) -> None:
        import torch.distributed as dist  # noqa: PLC0415

        if self._job.world_size > 1:
            dist.destroy_process_group()


def in_one_line(error: Exception) -> str:
    """Return the root cause's type and the first line of its message."""
    root = error
    while isinstance(root.__cause__, Exception):  # torch's pipelines wrap the original error
        root = root.__cause__
    lines = str(root).strip().splitlines() or [""]
    return f"{type(root).__name__}: {lines[0]}"[:300]


def _last_words(scratch: Path, rank: int, layout: Layout, error: Exception) -> None:
    failure = RankFailure(
        rank=rank, layout=layout.name, message=in_one_line(error), at_s=time.monotonic()
    )
    failure_file(scratch, rank).write_text(failure.model_dump_json(), "utf-8")
    sys.excepthook(type(error), error, error.__traceback__)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
