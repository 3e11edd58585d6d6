"""``autoresearch preflight``: check that a recipe trains the same under every parallelism.

With ``--hosts`` it runs on several hosts, and measures their link.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from agent.workbench.console import print_lines, say
from autoresearch.errors import MachineryError, SettingsError
from funnel.plan.preflight import (
    NORM_TOLERANCE,
    TOLERANCE,
    TOY_VOCAB,
    HostsCame,
    Sameness,
    hosts_preflight,
    layouts_for,
    toy_config,
)
from funnel.plan.preflight import preflight as run_preflight
from funnel.target.architecture import load_target
from funnel.target.plain_recipe import plain_config, recipe_config
from trainer.memory.estimate import parameter_count
from trainer.parallel.hosts.advice import PORT_GBIT_S, LinkFacts, advice
from trainer.parallel.hosts.job import DEFAULT_PORT, Hosts, read_hosts
from trainer.parallel.hosts.launch import HostsFailed
from trainer.parallel.job import DeviceKind
from trainer.spec import Config

STEPS = 5
"""Optimizer steps of each layout."""
NOT_RUN = (
    "not run: FP8, and the megatron backend's own TP and PP (GPUs only; see the launch plan's "
    "pre-flight list)"
)


def preflight(
    target: Annotated[
        str | None, typer.Option(help="A shipped target's name or a TOML file. Default: llama-7b.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="Recipe to run: handoff/recipe.json.")] = None,
    ranks: Annotated[
        Literal["2", "4", "8"],
        typer.Option(help="Largest number of ranks: 4 and 8 combine two and three parallelisms."),
    ] = "2",
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(help="gloo on cpu, NCCL on cuda; auto takes cuda where it has the ranks."),
    ] = "auto",
    hosts: HostsOption = None,
    port: PortOption = DEFAULT_PORT,
    this_host: ThisHostOption = None,
    meet: MeetOption = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Run a few steps of a recipe at toy width in every parallelism.

    DDP, FSDP, tensor and pipeline parallelism on 2 ranks each must reproduce the losses of a
    single process within rounding; data parallelism without averaging must not. Exit code 1: a
    layout failed.

    With --hosts, start the same command on each host: it runs DDP and FSDP2 over them and measures
    their link.
    """
    config = toy_config(_recipe(target, recipe))
    if hosts is not None:
        among, on = read_hosts(hosts, port=port, this=this_host), _device(device, 1)
        passed = _over_hosts(config, among, device=on, meet_s=meet, as_json=as_json)
    else:
        on = _device(device, int(ranks))
        results = run_preflight(config, layouts_for(int(ranks)), steps=STEPS, device=on)
        passed = _printed(results, config, on, as_json=as_json)
    if not passed:
        raise typer.Exit(1)


def _printed(results: Iterable[Sameness], config: Config, on: DeviceKind, *, as_json: bool) -> bool:
    """Print each result as it arrives, and return whether all passed."""
    console = Console(quiet=as_json)
    print_lines(console, _heading(config, on))
    seen: list[Sameness] = []
    for result in results:
        seen.append(result)
        console.print(_line(result), soft_wrap=True)
    passed = all(result.passed for result in seen)
    said = "every layout trains the same model" if passed else "do not launch on what failed"
    legend = (
        f"\n{said}; relative to the single process, allowed: {TOLERANCE:.0e} of a loss, "
        f"{NORM_TOLERANCE:.0e} of a gradient norm; the control passes if it differs\n"
        f"{NOT_RUN}"
    )
    say(console, legend, "dim")
    if as_json:
        found = {
            "passed": passed,
            "device": on,
            "steps": STEPS,
            "tolerance": TOLERANCE,
            "norm_tolerance": NORM_TOLERANCE,
            "config": config.canonical(),
            "layouts": [result.model_dump() for result in seen],
            "not_run": NOT_RUN,
        }
        typer.echo(json.dumps(found))
    return passed


def _recipe(target: str | None, recipe: Path | None) -> Config:
    if target is not None and recipe is not None:
        raise SettingsError("--target and --recipe are two recipes; give one of them")
    if recipe is not None:
        return recipe_config(recipe)
    return plain_config(load_target(target or "llama-7b"))


def _device(device: str, ranks: int) -> DeviceKind:
    if device == "cpu":
        return "cpu"
    import torch  # noqa: PLC0415 (a second that --help does not pay)

    gpus = torch.cuda.device_count()
    if gpus >= ranks:
        return "cuda"
    if device == "cuda":
        raise SettingsError(
            f"{ranks} ranks need as many GPUs, and torch sees {gpus}; use --device cpu"
        )
    return "cpu"


def _heading(config: Config, device: DeviceKind) -> tuple[Text, Text]:
    params = parameter_count(config, TOY_VOCAB)
    return (
        Text(
            f"toy       {config.n_layer} layers, d_model {config.d_model}, {config.n_head} heads, "
            f"{config.kv_heads} KV heads, d_ff {config.d_ff}, {config.activation}, {config.norm}, "
            f"{config.positions}, {'tied' if config.tie_embeddings else 'untied'}: "
            f"{params / 1e6:.2f} M parameters · {STEPS} steps · fp32 · "
            f"{'NCCL' if device == 'cuda' else 'gloo'} on {device}\n"
        ),
        Text(
            f"{'layout':<28} {'ranks':>5} {'first loss':>11} {'last loss':>11} "
            f"{'loss off by':>12} {'norm off by':>12}   verdict",
            style="bold",
        ),
    )


def _line(result: Sameness) -> Text:
    verdict = ("passed", "green") if result.passed else ("FAILED", "bold red")
    start = f"{result.layout:<28} {result.world_size:>5} "
    if result.loss_difference is None:
        return Text.assemble(f"{start}{'':>50}   ", verdict, f"  {result.message}")
    return Text.assemble(
        start,
        f"{result.loss_first:>11.6f} {result.loss_last:>11.6f} "
        f"{result.loss_difference:>12.1e} {result.norm_difference:>12.1e}   ",
        verdict,
        f"  {result.message}" if result.message else "",
    )


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


def _over_hosts(
    config: Config, hosts: Hosts, *, device: DeviceKind, meet_s: float, as_json: bool
) -> bool:
    """Run the check on several hosts, print it, and return whether every layout trained as it
    should.

    :raises MachineryError: if a host did not arrive or was lost.
    """
    console = Console()
    if not as_json:
        names = ", ".join(
            f"{name} (this one, on {hosts.interface})" if place == hosts.this else name
            for place, name in enumerate(hosts.names)
        )
        who = f"hosts     {names}; they meet on port {hosts.port} of {hosts.names[0]}"
        print_lines(console, (who, *_heading(config, device)))
    seen: list[HostsCame] = []
    for came in hosts_preflight(config, hosts, steps=STEPS, device=device, meet_s=meet_s):
        if isinstance(came, HostsFailed):
            raise MachineryError(came.message)
        seen.append(came)
        if not as_json:
            lines = (_line(came),) if isinstance(came, Sameness) else _link_lines(came)
            print_lines(console, lines)
    passed = all(came.passed for came in seen if isinstance(came, Sameness))
    if as_json:
        typer.echo(json.dumps(_hosts_json(hosts, seen, passed=passed)))
    return passed


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


def _hosts_json(hosts: Hosts, seen: list[HostsCame], *, passed: bool) -> dict[str, object]:
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
