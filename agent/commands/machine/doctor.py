"""``autoresearch doctor``: check whether this machine is ready."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent.commands.options import ProposerCommandOption
from agent.session.machine_checks import Check, examine
from agent.settings.environment import read_environment

_MARK = {"good": ("ok  ", "green"), "note": ("note", "yellow"), "bad": ("BAD ", "bold red")}


def doctor(
    menu: Annotated[
        str | None,
        typer.Option("--menu", help="Also check this menu's training command."),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Where trials will run: local, ray (this machine's cluster), ray:HOST:PORT or"
            " slurm."
        ),
    ] = "local",
    proposer_command: ProposerCommandOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check whether this machine is ready, and say what to fix.

    It checks Python, torch, the device, Megatron-Core, the sandbox, the disk, the corpus and the
    language model, and with --executor ray every node. Exit code 1: a check fails.
    """
    console, runs = Console(), Path("runs")
    environment = read_environment(proposer_command=proposer_command)
    checks: list[Check] = []
    found: Iterable[Check] = examine(environment, runs, menu)
    if executor != "local":
        from agent.session.cluster_checks import examine_cluster  # noqa: PLC0415 (of use to few)

        found = chain(found, examine_cluster(executor, menu=menu, runs=runs))
    for check in found:
        checks.append(check)
        if not as_json:
            mark, style = _MARK[check.state]
            line = Text.assemble((mark, style), f"  {check.name:<9} {check.found}")
            console.print(line, soft_wrap=True)
    ready = all(check.state != "bad" for check in checks)
    if as_json:
        typer.echo(json.dumps({"ready": ready, "checks": [asdict(check) for check in checks]}))
    if not ready:
        raise typer.Exit(1)
