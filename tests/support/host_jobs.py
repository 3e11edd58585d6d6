"""Provide the job of a rank on a host."""

from __future__ import annotations

from tests.support.configs import config
from trainer.parallel.hosts.job import HostJob, Hosts
from trainer.parallel.job import Layout, ParallelJob


def host_job(hosts: Hosts, seed: int = 0) -> HostJob:
    """Return a job of two steps of DDP over all hosts."""
    return HostJob(
        hosts=hosts,
        job=ParallelJob(
            config=config(precision="fp32", batch_size=2 * hosts.count),
            vocab_size=64,
            seed=seed,
            steps=2,
            device="cpu",
            layouts=(Layout(name="DDP", data=hosts.count),),
            deadline_s=120,
        ),
        meet_s=600,
        message_bytes=1 << 20,
    )
