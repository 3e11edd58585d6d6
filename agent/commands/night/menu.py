"""``autoresearch menu``: list, show, validate and narrow menus."""

import json
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from agent.commands.launch import targets
from agent.commands.night.from_script import from_script
from agent.menu.files import ProxyMenu, load_menu, shipped_menus
from agent.menu.reply_objects import ReplyError
from agent.menu.suggestions import SuggestedMenu, suggestions_schema
from agent.menu.trainer_table import evaluation_text
from agent.proposers.choice import program_text
from agent.settings.environment import read_environment
from agent.workbench.console import plain_table
from autoresearch.errors import MenuError, SettingsError
from autoresearch.files import write_new
from autoresearch.plain_text import plain
from autoresearch.words import json_text
from funnel.target.architecture import load_target
from funnel.target.menu_text import ShapeCheck

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
    from agent.proposers.llm.templates import rendered  # noqa: PLC0415

    chosen, directions = load_menu(menu), program_text(program)
    if not directions.strip():
        raise SettingsError(f"{program} is empty; write your research directions there")
    knobs = [
        {**knob.model_dump(mode="json"), "domain": str(knob.domain)}
        for knob in chosen.knobs.values()
    ]
    asked = rendered(TEMPLATE, {"knobs": knobs, "program": directions})
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
        _print_suggestions(found, diff)
    if out is not None:
        write_new(out, found.toml, error=MenuError)


app = typer.Typer(no_args_is_help=True, help="Show, draft and check menus of knobs.")
app.command("from-target")(targets.from_target)
app.command("from-script")(from_script)
app.command()(suggest)
app.command("targets")(targets.targets)

MIN_SHARE = 0.005
"""Share of random configs that should pass. Below it, some constraint is probably not what was
meant."""
MIN_NEIGHBOUR_SHARE = 0.05
"""Share of configs near the baseline that should pass. Below it, most proposals would be refused.
"""

NameOrPath = Annotated[str, typer.Argument(help="A shipped menu's name or a TOML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command("list")
def list_menus(as_json: AsJson = False) -> None:
    """List the menus that come with the product."""
    menus = [load_menu(name) for name in shipped_menus()]
    if as_json:
        fields = [
            {"name": m.name, "doc": m.doc, "knobs": list(m.knobs), "sha256": m.sha256}
            for m in menus
        ]
        typer.echo(json.dumps(fields, indent=2))
        return
    table = plain_table("menu", "knobs", "budget", "about")
    for menu in menus:
        table.add_row(menu.name, str(len(menu.knobs)), str(menu.campaign.budget), escape(menu.doc))
    Console().print(table)


@app.command()
def show(menu: NameOrPath, as_json: AsJson = False) -> None:
    """Show a menu's knobs, tied fields, constants, constraints and campaign defaults."""
    chosen = load_menu(menu)
    if as_json:
        typer.echo(json.dumps(fields(chosen), indent=2))
        return
    console = Console()
    console.print(f"[bold]{escape(chosen.name)}[/] {escape(chosen.doc)}", highlight=False)
    knobs = plain_table("knob", "domain", "default", "what it is")
    for knob in chosen.knobs.values():
        knobs.add_row(
            knob.name, escape(str(knob.domain)), json_text(knob.default), escape(knob.doc)
        )
    console.print(knobs)
    if chosen.ties:
        tied = plain_table("tied", "follows", "at the defaults")
        for tie in chosen.ties.values():
            formula, value = tie.expression.source.strip(), chosen.baseline.value(tie.name)
            tied.add_row(tie.name, escape(formula), json_text(value))
        console.print(tied)
    if chosen.constants:
        constants = plain_table("constant", "value")
        for name, value in chosen.constants.items():
            constants.add_row(name, json_text(value))
        console.print(constants)
    if chosen.constraints:
        skipped = chosen.unchecked(chosen.campaign.budget)
        constraints = plain_table("constraint", "why")
        for one in chosen.constraints:
            note = " (not checked: a budget in seconds has no known steps)" * (one in skipped)
            constraints.add_row(escape(one.expr.strip()), escape(one.doc + note))
        console.print(constraints)
    console.print(escape("\n".join(_campaign_lines(chosen))), highlight=False, soft_wrap=True)


@app.command()
def validate(
    menu: NameOrPath,
    target: Annotated[
        str | None,
        typer.Option(help="Target whose shape the menu should keep: a name or TOML file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a menu; exit 1 with one sentence if it cannot be used."""
    chosen = load_menu(menu)
    stands_for = load_target(target) if target is not None else None
    budget = chosen.campaign.budget
    share = chosen.satisfied_share(budget)
    neighbour_share = chosen.satisfied_share(budget, max_changes=3)
    warnings = _warnings(chosen, share, neighbour_share)
    if stands_for is not None:
        warnings += ShapeCheck.of(chosen, stands_for).warnings(stands_for.name)
    if as_json:
        report = {
            "name": chosen.name,
            "sha256": chosen.sha256,
            "satisfied_share": share,
            "neighbour_satisfied_share": neighbour_share,
            "warnings": warnings,
        }
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(
        f"{chosen.name} can be used: {len(chosen.knobs)} knobs, "
        f"{f'{len(chosen.tied)} tied fields, ' if chosen.tied else ''}"
        f"{len(chosen.constants)} constants, "
        f"{len(chosen.constraints)} constraints; of random configs {share:.1%} meet every "
        f"constraint, and {neighbour_share:.1%} of those with up to 3 knobs of the baseline turned"
    )
    for warning in warnings:
        typer.echo(f"warning: {warning}")


def _warnings(menu: ProxyMenu, share: float, neighbour_share: float) -> list[str]:
    warnings = []
    if share < MIN_SHARE:
        warnings.append(
            f"only {share:.2%} of random configs meet every constraint; widen a domain or loosen "
            "a constraint"
        )
    if neighbour_share < MIN_NEIGHBOUR_SHARE:
        warnings.append(
            f"only {neighbour_share:.2%} of configs near the baseline meet every constraint; move "
            "the defaults away from the edge"
        )
    return warnings + [
        f"{constraint.expr.strip()} is not checked, as a budget in seconds has no known steps"
        for constraint in menu.unchecked(menu.campaign.budget)
    ]


def fields(menu: ProxyMenu) -> dict[str, Any]:
    """Return a menu for JSON."""
    skipped = menu.unchecked(menu.campaign.budget)
    fields = menu.model_dump(mode="json", exclude={"toml"})
    fields["campaign"]["budget"] = str(menu.campaign.budget)
    fields["constraints"] = [
        {**one.model_dump(), "checked": one not in skipped} for one in menu.constraints
    ]
    return {
        **fields,
        "sha256": menu.sha256,
        "baseline": menu.baseline.canonical(),
        "baseline_config_hash": menu.baseline.config_hash,
    }


def _campaign_lines(menu: ProxyMenu) -> list[str]:
    campaign, trainer = menu.campaign, menu.trainer
    if trainer is not None:
        return [
            f"trainer: {' '.join(trainer.command)}",
            f"score: {evaluation_text(trainer)}",
            f"campaign: budget {campaign.budget}",
        ]
    horizon = "budget" if campaign.horizon_steps is None else f"{campaign.horizon_steps} steps"
    return [
        f"campaign: budget {campaign.budget}, schedule horizon {horizon}, corpus "
        f"{campaign.corpus}, tokenizer {campaign.tokenizer}, "
        f"{campaign.heldout_bytes} bytes held out"
    ]


def _print_suggestions(found: SuggestedMenu, diff: list[str]) -> None:
    for line in diff:
        typer.echo(line)
    for knob, reason in found.reasons.items():
        typer.echo(f"{knob}: {plain(reason)}")
    for each in found.left_out:
        typer.echo(f"left out: {plain(each)}")
    if not diff:
        typer.echo("the directions narrow no knob")
