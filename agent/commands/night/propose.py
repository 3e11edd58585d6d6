"""``autoresearch propose`` and ``check``: queue proposals, or show what the rails say of them."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from agent.commands.campaign_view import CampaignView
from agent.menu.files import load_menu
from agent.menu.rails import Rails
from agent.menu.replies import Form
from agent.session.console import answer, plain_table
from agent.session.places import CampaignOption, existing_campaign
from autoresearch.errors import AutoresearchError
from autoresearch.files import read_given
from autoresearch.safe_text import plain
from autoresearch.values import Scalar
from autoresearch.words import changes_text, counted, json_text
from trainer.code_check import CodeRunner
from trajectory.lock import lock_state
from trajectory.queue import withdraw

SHOWN = 20
"""Most recent iterations that ``--list`` shows."""


def propose(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KNOB=VALUE...",
            help="New values, such as lr=0.002. KNOB=@FILE takes the content of a file.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why it should help.")] = "",
    author: Annotated[
        str | None,
        typer.Option("--author", help="Who proposes, for the row. Default: your user name."),
    ] = None,
    campaign: CampaignOption = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the queue, and what became of earlier proposals.")
    ] = False,
    withdrawn: Annotated[
        str | None, typer.Option("--withdraw", metavar="ID", help="Remove a proposal that waits.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Queue a proposal for a campaign's loop, also while it runs.

    The loop takes it before it asks its own proposer, as an edit of the best config at that time.
    """
    view = CampaignView(existing_campaign(campaign))
    if withdrawn is not None:
        withdraw(view.directory, withdrawn)
        answer({"withdrawn": withdrawn}, [f"withdrawn: {withdrawn}"], as_json=as_json)
    if listed:
        _list(view, as_json=as_json)
    if listed or withdrawn is not None:
        return
    if not changes:
        raise typer.BadParameter("give KNOB=VALUE, --list or --withdraw ID")
    queued = view.propose(dict(map(_change, changes)), reason, author)
    others = sum(one.state == "waiting" for one in view.queue()) - 1
    when = "at its next iteration" if others <= 0 else f"after {counted(others, 'other proposal')}"
    taken = f"the loop takes it {when}"
    if lock_state(view.directory) != "held":
        taken = f"no loop works on {view.directory} now; the next one takes it {when}"
    said = f"queued {queued.id} by {queued.author}: {_said(queued.proposal.changes)}"
    answer(queued, [said, taken], as_json=as_json)


def _change(text: str) -> tuple[str, Scalar]:
    """Parse ``lr=0.002``. A value that is not JSON is text."""
    name, is_given, value = text.partition("=")
    if not is_given:
        raise typer.BadParameter(f"{text!r} has no value; write KNOB=VALUE, such as lr=0.002")
    if value.startswith("@"):
        return name, read_given(Path(value[1:])).decode("utf-8", "replace")
    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    return name, read if isinstance(read, bool | int | float | str) else value


def _said(changes: dict[str, Scalar]) -> str:
    return plain(changes_text(changes))


def _list(view: CampaignView, *, as_json: bool) -> None:
    found = [one.fields for one in view.queue()]
    in_rows = {row.proposer.queue_id: row for row in view.iterations() if row.proposer.queue_id}
    for queue_id, row in list(in_rows.items())[-SHOWN:]:
        action = row.decision.action if row.verdict.allowed else f"refused: {row.verdict.rail}"
        found.append(
            {
                "id": queue_id,
                "author": row.proposer.author,
                "state": action,
                "iter": row.iter,
                "changes": row.proposal.changes if row.proposal else {},
                "reason": row.proposal.reason if row.proposal else "",
            }
        )
    rows = (
        (
            *(one["id"], one["author"]),
            f"{one['state']} (iteration {one['iter']})" if "iter" in one else one["state"],
            *(_said(one["changes"]), plain(one["reason"])),
        )
        for one in found
    )
    table = plain_table("id", "author", "state", "changes", "reason", rows=rows)
    table.columns[0].no_wrap = True  # it is copied for --withdraw
    nothing = "no proposal waits, and none was taken before"
    answer(found, [table if found else nothing], as_json=as_json)


MAX_LINE_BYTES = 64 << 20
FORMS: tuple[Form, Form] = ("changes", "single-knob")
PUBLISHED = re.compile(r'"new_value"\s*:')
"""Key that only replies of the published single-knob loop have."""


def check(
    menu: Annotated[str, typer.Option(help="A shipped menu's name or a TOML file.")],
    what: Annotated[
        Literal["replies", "score"], typer.Argument(help="What to check. Default: replies.")
    ] = "replies",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per verdict.")
    ] = False,
) -> None:
    """Read raw replies on stdin and print the rails' verdict for each.

    A line of stdin is one reply as a JSON string. Each is checked alone, as an edit of the menu's
    baseline. A reply with a "new_value" has the form of the published single-knob loop. The memory
    rail is off, because it depends on a device and a corpus.

    `check score` instead runs the menu's training command a few times and says whether its score
    can be compared: is it repeatable, does it move with the seed, does a knob alter what it is
    measured on, is its direction right? Exit code 3: something is wrong.
    """
    if what == "score":
        _check_score(menu, as_json=as_json)
        return
    chosen = load_menu(menu)
    budget = chosen.campaign.budget
    ours, published = (Rails(chosen, budget=budget, form=form) for form in FORMS)
    ours.run_code = published.run_code = CodeRunner()
    typer.echo(NO_RAIL if chosen.trainer is None else NONE_OF_A_COMMAND, err=True)
    for raw in read_replies(sys.stdin.buffer):
        rails = published if PUBLISHED.search(raw) else ours
        checked = rails.check(raw, chosen.baseline)
        verdict = checked.verdict
        fields = {
            **verdict.model_dump(),
            "proposal": checked.proposal and checked.proposal.model_dump(),
            "config_hash": checked.config and checked.config.config_hash,
        }
        refused = f"refused by {verdict.rail}: {verdict.why}"
        answer(fields, ["allowed" if verdict.allowed else refused], as_json=as_json)


def _check_score(menu: str, *, as_json: bool) -> None:
    """Audit a menu's score and print each finding when it is known."""
    from agent.session.score_audit import ScoreAudit  # noqa: PLC0415 (slow to load)

    audit, is_bad = ScoreAudit.of(menu), False
    for one in audit.findings():
        is_bad = is_bad or one.state == "bad"
        answer(one, [f"{one.state:<4}  {one.check:<10}  {one}"], as_json=as_json)
    if not as_json:
        typer.echo(f"{counted(audit.runs, 'run')} of the command")
    if is_bad:
        raise typer.Exit(SCORE_IS_UNFIT)


SCORE_IS_UNFIT = 3
"""Exit code if a score is not comparable."""
NO_RAIL = "the memory rail is off here: the loop refuses what would not fit as well"
NONE_OF_A_COMMAND = "there is no memory rail: what a config needs is the command's own affair"


def read_replies(stream: BinaryIO) -> Iterator[str]:
    """Yield the replies on the lines of a stream, each as soon as its line is complete.

    :raises AutoresearchError: at the first line that is not a JSON string.
    """
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise AutoresearchError(
                f"line {number} of the input is longer than {MAX_LINE_BYTES >> 20} MiB; give one "
                "reply a line"
            )
        try:
            reply = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, str):
            seen = json_text(line[:40].decode("utf-8", "replace").rstrip("\n"))
            raise AutoresearchError(
                f"line {number} of the input is not a JSON string ({seen}); encode each raw reply "
                "as one JSON string a line"
            )
        yield reply
