"""``autoresearch preflight --hosts``: run the check on several hosts, and measure their link."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from autoresearch.errors import MachineryError
from funnel.hosts.preflight import HostsCame, hosts_preflight
from funnel.plan.preflight import Sameness
from trainer.parallel.hosts.advice import PORT_GBIT_S, LinkFacts, advice
from trainer.parallel.hosts.launch import HostsFailed
from trainer.parallel.hosts.meeting import Hosts
from trainer.parallel.job import DeviceKind
from trainer.spec import Config

HostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…",
        help="Run over these hosts, one rank on each; start the same command on all.",
    ),
]
PortOption = Annotated[
    int, typer.Option("--port", help="With --hosts: port of the first host, where all connect.")
]
ThisHostOption = Annotated[
    str | None,
    typer.Option(help="With --hosts: this host's name. Default: found by its addresses."),
]
MeetOption = Annotated[
    float, typer.Option(min=1, help="With --hosts: rendezvous timeout in seconds.")
]


def over_hosts(
    config: Config,
    hosts: Hosts,
    *,
    steps: int,
    device: DeviceKind,
    meet_s: float,
    heading: Iterable[Text],
    line: Callable[[Sameness], Text],
    as_json: bool,
) -> bool:
    """Run the check on several hosts, print it, and return whether every layout trained as it
    should.

    :param heading: lines to print first.
    :param line: formats a layout's line.
    :raises MachineryError: if a host did not arrive or was lost.
    """
    console = Console()
    if not as_json:
        for text in (Text(_who(hosts)), *heading):
            console.print(text, soft_wrap=True)
    seen: list[HostsCame] = []
    for came in hosts_preflight(config, hosts, steps=steps, device=device, meet_s=meet_s):
        if isinstance(came, HostsFailed):
            raise MachineryError(came.message)
        seen.append(came)
        if as_json:
            continue
        for text in (line(came),) if isinstance(came, Sameness) else _link_lines(came):
            console.print(text, soft_wrap=True)
    passed = all(came.passed for came in seen if isinstance(came, Sameness))
    if as_json:
        typer.echo(json.dumps(_as_json(hosts, seen, passed=passed)))
    return passed


def _who(hosts: Hosts) -> str:
    names = ", ".join(
        f"{name} (this one, on {hosts.interface})" if place == hosts.this else name
        for place, name in enumerate(hosts.names)
    )
    return f"hosts     {names}; they meet on port {hosts.port} of {hosts.names[0]}"


def _link_lines(facts: LinkFacts) -> Iterator[Text]:
    speed = facts.speed
    how = facts.nccl_network or "TCP"
    yield Text(
        f"\nlink      {speed.bus_gbit_s:.3g} Gb/s from each host ({speed.network} over {how}): "
        f"{speed.message_bytes >> 20} MiB all-reduced in {speed.seconds:.3g} s, the median of "
        f"{speed.repeats}; one number in {speed.latency_us:,.0f} µs"
    )
    yield Text(
        f"          {facts.share:.1%} of a port's {PORT_GBIT_S:g} Gb/s; averaging the fp32 "
        f"gradients of 1 B parameters would take {speed.gradient_s(1e9):.3g} s a step"
    )
    for sentence in advice(facts):
        yield Text(f"advice    {sentence}")


def _as_json(hosts: Hosts, seen: list[HostsCame], *, passed: bool) -> dict[str, object]:
    link = next((came for came in seen if isinstance(came, LinkFacts)), None)
    return {
        "passed": passed,
        "hosts": hosts.model_dump(mode="json"),
        "layouts": [came.model_dump() for came in seen if isinstance(came, Sameness)],
        "link": None
        if link is None
        else link.model_dump(mode="json")
        | {
            "bus_gbit_s": link.speed.bus_gbit_s,
            "port_gbit_s": PORT_GBIT_S,
            "share_of_a_port": link.share,
            "advice": list(advice(link)),
        },
    }
