"""``autoresearch menu``: list, show, validate and narrow menus."""

import json
from collections.abc import Iterator
from difflib import unified_diff
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from agent.commands.launch import targets
from agent.commands.night.from_script import OutOption, from_script
from agent.commands.options import JsonOption
from agent.menu.files import ProxyMenu, load_menu, shipped_menus
from agent.menu.knobs import Knob
from agent.menu.reply_objects import ReplyError
from agent.menu.suggestions import SuggestedMenu, suggestions_schema
from agent.menu.trainer_table import evaluation_text
from agent.proposers.choice import language_model, program_text
from agent.session.console import answer, plain_table
from agent.settings.environment import read_environment
from autoresearch.errors import MenuError, SettingsError
from autoresearch.files import write_new
from autoresearch.safe_text import plain
from autoresearch.words import json_text
from funnel.targets.architecture import load_target
from funnel.targets.proxies import ShapeCheck

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
    as_json: JsonOption = False,
) -> None:
    """Ask the language model which knobs your directions narrow, and print the menu's diff.

    Nothing is applied: a search uses the new menu only if you pass the file to loop --menu.
    """
    from agent.proposers.llm.completions import Message  # noqa: PLC0415 (slow to load)
    from agent.proposers.llm.prompt import rendered  # noqa: PLC0415

    chosen, directions = load_menu(menu), program_text(program)
    if not directions.strip():
        raise SettingsError(f"{program} is empty; write your research directions there")
    knobs = [
        {**knob.model_dump(mode="json"), "domain": str(knob.domain)}
        for knob in chosen.knobs.values()
    ]
    asked = rendered(TEMPLATE, {"knobs": knobs, "program": directions})
    model = language_model(read_environment())
    reply = model.ask([Message("user", asked)], suggestions_schema(chosen))
    try:
        found = SuggestedMenu.of(chosen, reply.text)
    except ReplyError as error:
        why = reply.error or error
        raise MenuError(f"{model.model} gave no usable suggestion: {why}; ask again") from error
    lines = chosen.toml.splitlines(), found.toml.splitlines()
    diff = list(unified_diff(*lines, f"{chosen.name} now", "suggested", lineterm="", n=2))
    if as_json:
        report = {"reasons": found.reasons, "left_out": found.left_out, "diff": diff}
        typer.echo(json.dumps(report, indent=2))
    else:
        shown = [*diff, *(f"{knob}: {plain(reason)}" for knob, reason in found.reasons.items())]
        shown += (f"left out: {plain(each)}" for each in found.left_out)
        typer.echo("\n".join(shown if diff else [*shown, "the directions narrow no knob"]))
    if out is not None:
        write_new(out, found.toml, error=MenuError)


app = typer.Typer(no_args_is_help=True, help="Show, draft and check menus of knobs.")
app.command("from-target")(targets.from_target)
app.command("from-script")(from_script)
app.command()(suggest)
app.command("targets")(targets.targets)


@app.command("new")
def new_menu(out: OutOption = None) -> None:
    """Write a commented example of a menu for your own training command."""
    text = resources.files("agent.menu").joinpath("example.toml").read_text("utf-8")
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_new(out, text, error=MenuError)


MIN_SHARE = 0.005
"""Share of random configs that should pass. Below it, some constraint is probably not what was
meant."""
MIN_NEIGHBOUR_SHARE = 0.05
"""Share of configs near the baseline that should pass. Below it, most proposals would be refused.
"""

NameOrPath = Annotated[str, typer.Argument(help="A shipped menu's name or a TOML file.")]


@app.command("list")
def list_menus(as_json: JsonOption = False) -> None:
    """List the menus that come with the product."""
    menus = [load_menu(name) for name in shipped_menus()]
    fields = [
        {"name": m.name, "doc": m.doc, "knobs": list(m.knobs), "sha256": m.sha256} for m in menus
    ]
    rows = ((m.name, len(m.knobs), m.campaign.budget, m.doc) for m in menus)
    table = plain_table("menu", "knobs", "budget", "about", rows=rows)
    answer(fields, [table], as_json=as_json, indent=2)


@app.command()
def show(menu: NameOrPath, as_json: JsonOption = False) -> None:
    """Show a menu's knobs, tied fields, constants, constraints and campaign defaults."""
    chosen = load_menu(menu)
    answer(fields(chosen), _shown(chosen), as_json=as_json, indent=2)


def _condition(knob: Knob) -> str:
    return f"; counts only when {knob.when}" if knob.when else ""


def _shown(menu: ProxyMenu) -> Iterator[RenderableType]:
    yield Group(Text.assemble((menu.name, "bold"), " ", menu.doc))
    knobs = (
        (k.name, k.domain, json_text(k.default), f"{k.doc}{_condition(k)}")
        for k in menu.knobs.values()
    )
    yield plain_table("knob", "domain", "default", "what it is", rows=knobs)
    if menu.ties:
        ties = (
            (tie.name, tie.expression.source.strip(), json_text(menu.baseline.value(tie.name)))
            for tie in menu.ties.values()
        )
        yield plain_table("tied", "follows", "at the defaults", rows=ties)
    if menu.constants:
        constants = ((name, json_text(value)) for name, value in menu.constants.items())
        yield plain_table("constant", "value", rows=constants)
    if menu.constraints:
        skipped = menu.unchecked(menu.campaign.budget)
        note = " (not checked: a budget in seconds has no known steps)"
        rules = ((c.expr.strip(), c.doc + note * (c in skipped)) for c in menu.constraints)
        yield plain_table("constraint", "why", rows=rules)
    campaign, trainer = menu.campaign, menu.trainer
    if trainer is not None:
        yield f"trainer: {' '.join(trainer.command)}"
        yield f"score: {evaluation_text(trainer)}"
        yield f"campaign: budget {campaign.budget}"
        return
    horizon = "budget" if campaign.horizon_steps is None else f"{campaign.horizon_steps} steps"
    yield (
        f"campaign: budget {campaign.budget}, schedule horizon {horizon}, "
        f"corpus {campaign.corpus}, tokenizer {campaign.tokenizer}, "
        f"{campaign.heldout_bytes} bytes held out"
    )


@app.command()
def validate(
    menu: NameOrPath,
    target: Annotated[
        str | None,
        typer.Option(help="Target whose shape the menu should keep: a name or TOML file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a menu; exit 1 with one sentence if it cannot be used."""
    chosen = load_menu(menu)
    stands_for = None if target is None else load_target(target)  # before what takes long
    budget = chosen.campaign.budget
    share = chosen.satisfied_share(budget)
    neighbour_share = chosen.satisfied_share(budget, max_changes=3)
    warnings = _warnings(chosen, share, neighbour_share)
    if stands_for is not None:
        warnings += ShapeCheck.of(chosen, stands_for).warnings(stands_for.name)
    report = {
        "name": chosen.name,
        "sha256": chosen.sha256,
        "satisfied_share": share,
        "neighbour_satisfied_share": neighbour_share,
        "warnings": warnings,
    }
    said = (
        f"{chosen.name} can be used: {len(chosen.knobs)} knobs, "
        f"{f'{len(chosen.tied)} tied fields, ' if chosen.tied else ''}"
        f"{len(chosen.constants)} constants, "
        f"{len(chosen.constraints)} constraints; of random configs {share:.1%} meet every "
        f"constraint, and {neighbour_share:.1%} of those with up to 3 knobs of the baseline turned"
    )
    lines = (said, *(f"warning: {warning}" for warning in warnings))
    answer(report, lines, as_json=as_json, indent=2)


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
