"""``python -m trainer.parallel.hosts.worker SCRATCH``: one host's rank."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.files import replace_file
from trainer.isolation.process_tree import die_with_parent
from trainer.parallel.hosts.job import (
    BEAT_S,
    FAILURE_FILE,
    LINK_FILE,
    HostJob,
)
from trainer.parallel.job import JOB_FILE, SINGLE
from trainer.parallel.worker import append_losses, in_one_line, rank_device

if TYPE_CHECKING:
    from trainer.parallel.hosts.watch import TCPStore, Watch

LINGER_S = 30 * BEAT_S
"""Seconds of heartbeats after a failure here, so that the others see that this host was not lost;
the process that started it ends it sooner."""
READ_S = 5 * BEAT_S
"""Seconds that the first host, whose store they read, stays for the others to read all reports."""
_ASK_S = 0.2


class MeetingFailed(Exception):
    """The hosts did not come together; the message is a sentence for the user."""


def main(scratch: Path) -> int:
    """Meet the others, train every layout, measure the link."""
    die_with_parent(os.getppid())
    job = HostJob.model_validate_json((scratch / JOB_FILE).read_bytes())
    # If the starting process is gone, nothing else ends a rank that waits for another.
    signal.setitimer(signal.ITIMER_REAL, job.job.deadline_s)
    watch: Watch | None = None
    try:
        store, watch = meet(job, scratch)
        _work(job, scratch, store)
        watch.leave()
    except MeetingFailed as failed:
        replace_file(scratch / FAILURE_FILE, str(failed))
        return 1
    except Exception as error:  # noqa: BLE001 (the edge of a process)
        if watch is not None:
            watch.fail(in_one_line(error))
        replace_file(scratch / FAILURE_FILE, in_one_line(error))
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        if watch is not None:
            time.sleep(LINGER_S)
        return 1
    return 0


def meet(job: HostJob, scratch: Path) -> tuple[TCPStore, Watch]:
    """Wait until all hosts have arrived, and check that all have the same command.

    :raises MeetingFailed: if one is missing, or has another command.
    """
    from trainer.parallel.hosts.watch import Watch  # noqa: PLC0415 (torch, under the timer)

    store = _store(job)
    _all_here(job, store)
    watch = Watch(job.hosts, scratch)
    watch.start()
    return store, watch


def _store(job: HostJob) -> TCPStore:
    """Return the store, created on the first host and reached from the others."""
    import socket  # noqa: PLC0415

    from trainer.parallel.hosts.watch import TCPStore  # noqa: PLC0415

    hosts = job.hosts
    first, port = hosts.addresses[0], hosts.port
    try:
        if hosts.this > 0:
            return TCPStore(first, port, timeout=timedelta(seconds=job.meet_s))
        family = socket.AF_INET6 if ":" in first else socket.AF_INET
        listener = socket.create_server((first, port), family=family, backlog=128)
        return TCPStore(
            first,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=job.meet_s),
            # Listen on this address only; by default it would be all of the machine's.
            master_listen_fd=listener.detach(),
        )
    except OSError as error:
        raise MeetingFailed(
            f"port {port} of {first} cannot be listened on ({error.strerror or error}); choose "
            "another with --port, the same on every host"
        ) from error
    except RuntimeError as error:
        raise MeetingFailed(
            f"the first host, {hosts.names[0]}, did not answer on {first} port {port} within "
            f"{job.meet_s:g} s; start the same command there, and see that no firewall is between"
        ) from error


def _all_here(job: HostJob, store: TCPStore) -> None:
    import torch  # noqa: PLC0415

    hosts = job.hosts
    said = {"fingerprint": job.fingerprint(), "torch": torch.__version__}
    give_up_at = time.monotonic() + job.meet_s
    try:
        store.set(f"here/{hosts.this}", json.dumps(said))
        while missing := _missing("here", hosts.count, store):
            if time.monotonic() > give_up_at:
                names = ", ".join(hosts.names[place] for place in missing)
                raise MeetingFailed(
                    f"{names} did not connect within {job.meet_s:g} s; start the same command "
                    "there, "
                    f"and see that it reaches {hosts.addresses[0]} port {hosts.port}"
                )
            time.sleep(_ASK_S)
        reports = [json.loads(store.get(f"here/{place}")) for place in range(hosts.count)]
        store.set(f"read/{hosts.this}", "")
        if hosts.this == 0:
            _wait_for_readers(hosts.count, store)
    except RuntimeError as error:
        raise MeetingFailed(
            f"the first host, {hosts.names[0]}, left before all were connected; its own output "
            "says why"
        ) from error
    _refuse_unlike(job, reports)


def _missing(mark: str, count: int, store: TCPStore) -> list[int]:
    return [place for place in range(count) if not store.check([f"{mark}/{place}"])]


def _wait_for_readers(count: int, store: TCPStore) -> None:
    """Keep a first host that refuses the others until they have read the same. Otherwise its store
    would end with it. The watch reports a host that is lost meanwhile."""
    give_up_at = time.monotonic() + READ_S
    while _missing("read", count, store) and time.monotonic() < give_up_at:
        time.sleep(_ASK_S / 4)


def _refuse_unlike(job: HostJob, reports: list[dict[str, Any]]) -> None:
    names, first = job.hosts.names, reports[0]
    for name, other in zip(names[1:], reports[1:], strict=True):
        if other["torch"] != first["torch"]:
            raise MeetingFailed(
                f"{name} has torch {other['torch']} and {names[0]} {first['torch']}; install one "
                "version on all hosts"
            )
        if other["fingerprint"] != first["fingerprint"]:
            raise MeetingFailed(
                f"{name} was given another recipe, or other options, than {names[0]}; give the "
                "same command on every host"
            )


def _work(job: HostJob, scratch: Path, store: TCPStore) -> None:
    import torch.distributed as dist  # noqa: PLC0415

    from trainer.parallel.hosts.link import measure_link  # noqa: PLC0415
    from trainer.parallel.hosts.watch import PrefixStore  # noqa: PLC0415

    device = rank_device(job.job.device, 0)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=PrefixStore("group", store),
        rank=job.hosts.this,
        world_size=job.hosts.count,
        timeout=timedelta(seconds=job.job.deadline_s),
    )
    if job.trains:
        from trainer.parallel.rank_model import train  # noqa: PLC0415

        for layout in (SINGLE, *job.job.layouts):
            append_losses(scratch, train(job.job, layout, device))
    speed = measure_link(job.message_bytes, device)
    replace_file(scratch / LINK_FILE, speed.model_dump_json())
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
