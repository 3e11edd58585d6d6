"""``python -m trainer.parallel.worker SCRATCH``: one rank, under torchrun, or the only one."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.isolation.process_tree import die_with_parent
from trainer.parallel.job import (
    JOB_FILE,
    LOSSES_FILE,
    DeviceKind,
    LayoutLosses,
    ParallelJob,
    RankFailure,
    failure_file,
)

if TYPE_CHECKING:
    import torch


def main(scratch: Path) -> int:
    """Train every layout of the job; rank 0 writes the results."""
    die_with_parent(os.getppid())  # torchrun starts its workers in sessions of their own
    job = ParallelJob.model_validate_json((scratch / JOB_FILE).read_bytes())
    # If the starting process is gone, nothing else ends a rank that waits for another.
    signal.setitimer(signal.ITIMER_REAL, job.deadline_s)
    rank = 0
    try:
        # torch, under the timer
        import torch.distributed as dist  # noqa: PLC0415

        from trainer.parallel.rank_model import train  # noqa: PLC0415

        if job.world_size > 1:
            backend = "nccl" if job.device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(seconds=job.deadline_s))
            rank = dist.get_rank()
        device = rank_device(job.device, rank)
        for layout in job.layouts:
            losses = train(job, layout, device)
            if rank == 0:
                append_losses(scratch, losses)
        if job.world_size > 1:
            dist.destroy_process_group()
    except Exception as error:  # noqa: BLE001 (the edge of a process)
        failure = RankFailure(rank=rank, message=in_one_line(error), at_s=time.monotonic())
        failure_file(scratch, rank).write_text(failure.model_dump_json(), "utf-8")
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def rank_device(kind: DeviceKind, number: int) -> torch.device:
    """Return the device of a rank on this machine, after setting torch up for a comparison."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    if kind == "cpu":
        return torch.device("cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda", number)
    torch.cuda.set_device(device)
    return device


def append_losses(scratch: Path, losses: LayoutLosses) -> None:
    """Append the result of a layout for the process that started the ranks."""
    with (scratch / LOSSES_FILE).open("a", encoding="utf-8") as file:
        file.write(losses.model_dump_json() + "\n")


def in_one_line(error: Exception) -> str:
    """Return the root cause's type and the first line of its message."""
    root = error
    while isinstance(root.__cause__, Exception):  # torch's pipelines wrap the original error
        root = root.__cause__
    lines = str(root).strip().splitlines() or [""]
    return f"{type(root).__name__}: {lines[0]}"[:300]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
