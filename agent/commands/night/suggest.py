"""``autoresearch menu suggest``: narrow a menu as a language model reads your directions."""

from __future__ import annotations

import json
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from agent.commands.new_file import write_new
from agent.menu.files import load_menu
from agent.menu.reply.objects import ReplyError
from agent.menu.suggestions import SuggestedMenu, suggestions_schema
from agent.proposers.choice import program_text
from agent.settings.environment import read_environment
from autoresearch.errors import MenuError, SettingsError
from autoresearch.plain_text import plain

TEMPLATE = "suggest.md.j2"


def suggest(
    menu: Annotated[str, typer.Argument(help="A shipped menu's name or a TOML file.")],
    *,
    program: Annotated[
        Path, typer.Option(metavar="PATH", help="Text file with your research directions.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New menu file to write, besides the diff.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Ask the language model which knobs your directions narrow, and print the menu's diff.

    Nothing is applied: a search uses the new menu only if you pass the file to loop --menu.
    """
    from agent.proposers.llm.completions import Message  # noqa: PLC0415 (slow to load)
    from agent.proposers.llm.endpoint import Endpoint  # noqa: PLC0415
    from agent.proposers.llm.templates import load_templates  # noqa: PLC0415

    chosen, directions = load_menu(menu), program_text(program)
    if not directions.strip():
        raise SettingsError(f"{program} is empty; write your research directions there")
    template = load_templates(None, {TEMPLATE: {"knobs", "program"}})[TEMPLATE]
    knobs = [
        {**knob.model_dump(mode="json"), "domain": str(knob.domain)}
        for knob in chosen.knobs.values()
    ]
    asked = template.render({"knobs": knobs, "program": directions})
    endpoint = Endpoint.of(read_environment())
    reply = endpoint.ask([Message("user", asked)], suggestions_schema(chosen))
    try:
        found = SuggestedMenu.of(chosen, reply.text)
    except ReplyError as error:
        why = reply.error or error
        raise MenuError(f"{endpoint.model} gave no usable suggestion: {why}; ask again") from error
    lines = chosen.toml.splitlines(), found.toml.splitlines()
    diff = list(unified_diff(*lines, f"{chosen.name} now", "suggested", lineterm="", n=2))
    if as_json:
        report = {"reasons": found.reasons, "left_out": found.left_out, "diff": diff}
        typer.echo(json.dumps(report, indent=2))
    else:
        _print(found, diff)
    if out is not None:
        write_new(out, found.toml, error=MenuError)


def _print(found: SuggestedMenu, diff: list[str]) -> None:
    for line in diff:
        typer.echo(line)
    for knob, reason in found.reasons.items():
        typer.echo(f"{knob}: {plain(reason)}")
    for each in found.left_out:
        typer.echo(f"left out: {plain(each)}")
    if not diff:
        typer.echo("the directions narrow no knob")
