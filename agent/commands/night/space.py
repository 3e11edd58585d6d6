"""``autoresearch space``: show what a campaign's proposals may set, and edit it."""

import tomllib
from typing import Annotated

import typer

from agent.commands.campaign_view import CampaignView
from agent.session.console import answer, plain_table
from agent.session.places import CampaignOption, existing_campaign
from autoresearch.errors import SettingsError
from autoresearch.safe_text import plain
from autoresearch.words import json_text
from trajectory.lock import lock_state


def space(
    edits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KNOB.KEY=VALUE...",
            help="Keys of a knob's table to replace, such as lr.low=1e-4, or lr.frozen=true.",
            show_default=False,
        ),
    ] = None,
    author: Annotated[
        str | None,
        typer.Option("--author", help="Who edits, for the row. Default: your user name."),
    ] = None,
    campaign: CampaignOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show or edit what proposals may set, also while the loop runs.

    The loop takes an edit up once the running iterations have ended. Everything measured before
    stays in the ranking, and the search learns from it. A constant with a whole domain becomes a
    knob.
    """
    view = CampaignView(existing_campaign(campaign))
    if not edits:
        _show(view, as_json=as_json)
        return
    try:
        tables = tomllib.loads("\n".join(edits))
    except ValueError as error:
        raise SettingsError(
            f"{' '.join(edits)!r:.200} is no edit ({error}); write each as KNOB.KEY=VALUE, text in "
            "double quotation marks"
        ) from error
    edit = view.edit_space(tables, author)
    taken = "the loop takes it up once the running iterations have ended"
    if lock_state(view.directory) != "held":
        taken = f"no loop works on {view.directory} now; the next one takes it up first"
    answer(edit, [f"edited by {edit.author}: {plain(str(edit))}", taken], as_json=as_json)


def _show(view: CampaignView, *, as_json: bool) -> None:
    menu, reference, waiting = view.space()
    values = menu.knob_values(reference).items()
    now = {name: value for name, value in values if name not in menu.code_knobs}
    frozen = [name for name in now if name not in menu.open_domains]
    fields = {
        "knobs": {
            name: {
                "domain": None if name in frozen else menu.open_domains[name].table(),
                "now": value,
            }
            for name, value in now.items()
        },
        "waiting": [edit.model_dump(mode="json") for edit in waiting],
    }
    rows = (
        (
            name,
            "frozen" if name in frozen else plain(str(menu.open_domains[name])),
            plain(json_text(value)),
        )
        for name, value in now.items()
    )
    table = plain_table("knob", "proposals may set", "reference", rows=rows)
    waits = [f"not taken up yet: {plain(str(edit))}" for edit in waiting]
    answer(fields, [table, *waits], as_json=as_json)
