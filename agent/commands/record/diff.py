"""``autoresearch diff``: compare two campaigns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent.workbench.places import existing_campaign
from trajectory.report.versus import compare_campaigns


def diff(
    a: Annotated[Path, typer.Argument(help="A campaign's directory.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another campaign's directory.", metavar="B")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compare two campaigns: protocol, settings, menu and result.

    It says whether their numbers may be compared, and estimates the difference of the confirmed
    winners.
    """
    found = compare_campaigns(existing_campaign(a), existing_campaign(b))
    if as_json:
        typer.echo(found.model_dump_json())
        return
    console = Console()
    for label, text in found.facts():
        console.print(Text.assemble((f"{label:<10}", "bold"), text), soft_wrap=True)
