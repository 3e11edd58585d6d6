"""Run the pre-flight over several hosts, one rank each: DDP and FSDP2 against a single process.

Every host compares with its own single process, so a host with different arithmetic shows. Then the
link is measured. If NCCL used RoCE, a second measurement without it shows what RoCE gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from funnel.plan.preflight import LAYOUT_S, TOY_BATCH, TOY_VOCAB, Sameness, compare
from trainer.parallel.hosts.advice import LinkFacts
from trainer.parallel.hosts.job import HostJob
from trainer.parallel.hosts.launch import HostsFailed, LinkFound, run_host
from trainer.parallel.hosts.meeting import Hosts
from trainer.parallel.hosts.roce import mtu_of, roce_devices
from trainer.parallel.job import SINGLE, DeviceKind, Layout, LayoutLosses, ParallelJob
from trainer.spec import Config

HostsCame: TypeAlias = Sameness | LinkFacts | HostsFailed

MESSAGE_BYTES: dict[DeviceKind, int] = {"cpu": 64 << 20, "cuda": 256 << 20}
"""Size of the measured all-reduces. NCCL's buffers take the same amount again of a GB10's
memory."""


def layouts_over(hosts: int) -> tuple[Layout, ...]:
    """Return each data parallelism with one rank per host, and the control that must fail."""
    return (
        Layout(name=f"DDP over {hosts} hosts", data=hosts),
        Layout(name=f"FSDP2 over {hosts} hosts", data=hosts, sharded=True),
        Layout(name="control: DDP, not averaged", data=hosts, averaged=False),
    )


def hosts_preflight(
    config: Config,
    hosts: Hosts,
    *,
    steps: int,
    device: DeviceKind,
    meet_s: float,
) -> Iterator[HostsCame]:
    """Yield the comparison of each layout with the single process, then the link, as they arrive.

    The first failure ends the iterator.

    :param config: in fp32, as :func:`funnel.plan.preflight.toy_config` makes it.
    :param meet_s: limit for the rendezvous of the hosts.
    :raises MachineryError: if no process can be started.
    """
    layouts = layouts_over(hosts.count)
    batch = hosts.count * -(-TOY_BATCH // hosts.count)
    job = HostJob(
        hosts=hosts,
        job=ParallelJob(
            config=config.model_copy(update={"batch_size": batch}),
            vocab_size=TOY_VOCAB,
            seed=0,
            steps=steps,
            device=device,
            layouts=layouts,
            deadline_s=meet_s + LAYOUT_S * (len(layouts) + 2),
        ),
        meet_s=meet_s,
        message_bytes=MESSAGE_BYTES[device],
    )
    single: LayoutLosses | None = None
    for came in run_host(job):
        if isinstance(came, LayoutLosses):
            single = single or came
            layout = next((one for one in layouts if one.name == came.name), SINGLE)
            yield compare(layout, came, single)
        elif isinstance(came, HostsFailed):
            yield came
            return
        else:
            yield from _link(job, came)


def _link(job: HostJob, found: LinkFound) -> Iterator[HostsCame]:
    tcp_gbit_s = None
    if found.nccl_network == "IB":
        other_port = job.hosts.model_copy(update={"port": job.hosts.port + 1})
        again = job.model_copy(update={"trains": False, "hosts": other_port})
        for came in run_host(again, {"NCCL_IB_DISABLE": "1"}):
            if isinstance(came, HostsFailed):
                yield came
                return
            if isinstance(came, LinkFound):
                tcp_gbit_s = came.speed.bus_gbit_s
    interface = job.hosts.interface
    yield LinkFacts(
        speed=found.speed,
        nccl_network=found.nccl_network,
        tcp_gbit_s=tcp_gbit_s,
        interface=interface,
        mtu=mtu_of(interface),
        devices=roce_devices(),
    )
