"""Test that a recipe trains the same under every layout, with a few steps at toy width.

The toy config has the recipe's activation, norm, positions, tied or untied embeddings, ratios of
heads to KV heads and of d_ff to d_model, and optimizer. The maximal-update rule carries the
learning rate back to the toy width, ``lr × d_model / toy d_model`` (arXiv 2203.03466), up to 3e-3,
without warm-up. All layouts share the global batch, the seed and the initial weights. In fp32 their
losses then differ only by the order of sums: about 1e-7, relative.

A control, data parallelism without averaged gradients, must differ. It shows that the comparison
detects a faulty layout.

Over several hosts, one rank each, DDP and FSDP2 are compared with a single process. Every host
compares with its own single process, so a host with different arithmetic shows. Then the link is
measured. If NCCL used RoCE, a second measurement without it shows what RoCE gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from autoresearch.values import Frozen
from trainer.parallel.hosts.advice import LinkFacts, mtu_of, roce_devices
from trainer.parallel.hosts.job import HostJob, Hosts
from trainer.parallel.hosts.launch import HostsFailed, LinkFound, run_host
from trainer.parallel.job import SINGLE, DeviceKind, Layout, LayoutLosses, ParallelJob
from trainer.parallel.launch import Launcher, LayoutFailed
from trainer.spec import Config, make_config

TOLERANCE = 1e-5
"""Largest allowed relative difference of a loss from the single process's loss."""
NORM_TOLERANCE = 1e-4
"""Largest allowed relative difference of a gradient norm, which sums squares over shards of any
size."""

TOY_LAYERS = 4
TOY_HEAD_DIM = 16
TOY_SEQ_LEN = 64
TOY_BATCH = 8
TOY_VOCAB = 512
MAX_LR = 3e-3
"""Largest learning rate of the toy config.

Steps that overshoot amplify rounding errors. At a rate of 1e-2 the errors grew to 1e-3 of a loss in
50 steps, at this rate to 2e-7 in 20 steps.
"""
LAYOUT_S = 600.0
"""Time limit of a layout in seconds."""

PAIRS = (
    Layout(name="data parallel, DDP", data=2),
    Layout(name="data parallel, FSDP", data=2, sharded=True),
    Layout(name="tensor parallel", tensor=2),
    Layout(name="pipeline parallel", pipeline=2),
)
COMBINATIONS = (
    Layout(name="tensor × FSDP", tensor=2, data=2, sharded=True),
    Layout(name="pipeline × FSDP", pipeline=2, data=2, sharded=True),
    Layout(name="tensor × pipeline", tensor=2, pipeline=2),
    Layout(name="tensor × pipeline × FSDP", tensor=2, pipeline=2, data=2, sharded=True),
)
CONTROL = Layout(name="control: DDP, not averaged", data=2, averaged=False)


class Sameness(Frozen):
    """Difference between the training under one layout and in a single process."""

    layout: str
    world_size: int
    is_control: bool = False
    loss_first: float | None = None
    loss_last: float | None = None
    loss_difference: float | None = None
    """Largest relative difference of a loss over the steps."""
    norm_difference: float | None = None
    """Largest relative difference of a gradient norm over the steps."""
    passed: bool
    message: str = ""
    """Why the layout did not pass; empty if it did."""


def toy_config(recipe: Config) -> Config:
    """Return the recipe at toy width, in fp32."""
    group = recipe.n_head // recipe.kv_heads
    kv_heads = 4 if group == 1 else 2
    width = kv_heads * group * TOY_HEAD_DIM
    return make_config(
        recipe.canonical()
        | {
            "n_layer": TOY_LAYERS,
            "n_head": kv_heads * group,
            "n_kv_head": None if group == 1 else kv_heads,
            "d_model": width,
            "d_ff": max(2, 2 * round(recipe.d_ff / recipe.d_model * width / 2)),
            "lr": min(MAX_LR, recipe.lr * recipe.d_model / width),
            "lr_warmup": 0,
            "batch_size": TOY_BATCH,
            "seq_len": TOY_SEQ_LEN,
            "precision": "fp32",
            # The rate above is already scaled to the toy width.
            "mup_base_width": None,
            "mup_base_depth": None,
        }
    )


def layouts_for(ranks: int) -> tuple[Layout, ...]:
    """Return the layouts that need at most this many ranks, the control included."""
    chosen = (*PAIRS, CONTROL, *COMBINATIONS)
    return tuple(layout for layout in chosen if layout.world_size <= ranks)


def preflight(
    config: Config,
    layouts: tuple[Layout, ...],
    *,
    steps: int,
    device: DeviceKind = "cpu",
) -> Iterator[Sameness]:
    """Yield the result of the single process, then each layout's comparison with it.

    :param config: a config in fp32, such as that of :func:`toy_config`.
    :raises MachineryError: if no process can be started.
    """
    launcher = Launcher(
        config,
        vocab_size=TOY_VOCAB,
        seed=0,
        steps=steps,
        device=device,
        timeout_s=LAYOUT_S,
    )
    (single,) = launcher.run((SINGLE,))
    if isinstance(single, LayoutFailed):
        yield _failed(SINGLE, single.message)
        return
    yield compare(SINGLE, single, single)
    for layout, came in zip(layouts, launcher.run(layouts), strict=True):
        if isinstance(came, LayoutFailed):
            yield _failed(layout, came.message)
        else:
            yield compare(layout, came, single)


def compare(layout: Layout, came: LayoutLosses, single: LayoutLosses) -> Sameness:
    """Compare one layout with the single process; a control passes if it differs."""
    loss = _difference(came.losses, single.losses)
    norm = _difference(came.grad_norms, single.grad_norms)
    is_same = loss <= TOLERANCE and norm <= NORM_TOLERANCE
    is_control = not layout.averaged
    message = ""
    if is_control and is_same:
        message = "it was not told apart: the comparison proves nothing"
    elif not is_control and not is_same:
        message = (
            f"losses differ by up to {loss:.1e} (allowed {TOLERANCE:.0e}), gradient norms by "
            f"{norm:.1e} (allowed {NORM_TOLERANCE:.0e}): this layout does not train the same model"
        )
    return Sameness(
        layout=layout.name,
        world_size=layout.world_size,
        is_control=is_control,
        loss_first=came.losses[0],
        loss_last=came.losses[-1],
        loss_difference=loss,
        norm_difference=norm,
        passed=not message,
        message=message,
    )


def _difference(values: tuple[float, ...], reference: tuple[float, ...]) -> float:
    pairs = zip(values, reference, strict=True)
    return max(abs(value - true) / max(abs(true), 1e-12) for value, true in pairs)


def _failed(layout: Layout, message: str) -> Sameness:
    return Sameness(
        layout=layout.name,
        world_size=layout.world_size,
        is_control=not layout.averaged,
        passed=False,
        message=message,
    )


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
