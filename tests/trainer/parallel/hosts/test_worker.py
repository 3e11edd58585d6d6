"""Ranks of one machine meet in a real store, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import sys
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.support.host_jobs import host_job
from tests.support.ports import free_port
from trainer.parallel.hosts import worker
from trainer.parallel.hosts.job import FAILURE_FILE, Hosts
from trainer.parallel.hosts.watch import TCPStore
from trainer.parallel.job import JOB_FILE

NAMES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


def work(scratch: Path, asks_every_s: float) -> None:
    worker._ASK_S = asks_every_s
    sys.exit(worker.main(scratch))


@pytest.mark.parametrize("slow", [0, 1])
def test_all_find_the_one_that_is_unlike_though_one_of_them_looks_seldom(
    slow: int, tmp_path: Path
) -> None:
    """The polls are two seconds apart, and the store ends with the first host."""
    port = free_port()
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["trainer.parallel.hosts.watch"])  # torch, for all of them

    def start(this: int, seed: int) -> BaseProcess:
        scratch = tmp_path / str(this)
        scratch.mkdir()
        hosts = Hosts(names=NAMES, addresses=NAMES, this=this, interface="lo", port=port)
        (scratch / JOB_FILE).write_text(host_job(hosts, seed).model_dump_json())
        process = forks.Process(target=work, args=(scratch, 2 if this == slow else 0.05))
        process.start()
        return process

    processes = [start(0, seed=0), start(1, seed=0)]
    TCPStore(NAMES[0], port, timeout=timedelta(seconds=600)).wait(["here/0", "here/1"])
    processes.append(start(2, seed=1))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, 1, 1]
    for this in range(3):
        said = (tmp_path / str(this) / FAILURE_FILE).read_text()
        assert said.startswith("127.0.0.3 was given another recipe, or other options, than "), said
