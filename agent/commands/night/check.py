"""``autoresearch check``: apply the rails without a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from agent.menu.files import load_menu
from agent.menu.rails import Checked, Rails
from agent.menu.replies import Form
from autoresearch.errors import AutoresearchError
from autoresearch.words import json_text
from trainer.code_check import CodeRunner

MAX_LINE_BYTES = 64 << 20
FORMS: tuple[Form, Form] = ("changes", "single-knob")
PUBLISHED = re.compile(r'"new_value"\s*:')
"""Key that only replies of the published single-knob loop have."""


def check(
    menu: Annotated[str, typer.Option(help="A shipped menu's name or a TOML file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per verdict.")
    ] = False,
) -> None:
    """Read raw replies on stdin and print the rails' verdict for each.

    A line of stdin is one reply as a JSON string. Each is checked alone, as an edit of the menu's
    baseline. A reply with a "new_value" has the form of the published single-knob loop. The memory
    rail is off, because it depends on a device and a corpus.
    """
    chosen = load_menu(menu)
    budget = chosen.campaign.budget
    ours, published = (Rails(chosen, budget=budget, form=form) for form in FORMS)
    ours.run_code = published.run_code = CodeRunner()
    typer.echo(NO_RAIL if chosen.trainer is None else NONE_OF_A_COMMAND, err=True)
    for raw in read_replies(sys.stdin.buffer):
        rails = published if PUBLISHED.search(raw) else ours
        checked = rails.check(raw, chosen.baseline)
        verdict = checked.verdict
        if as_json:
            typer.echo(json.dumps(_fields(checked)))
        else:
            refused = f"refused by {verdict.rail}: {verdict.why}"
            typer.echo("allowed" if verdict.allowed else refused)


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
        yield _reply(line, number)


def _reply(line: bytes, number: int) -> str:
    try:
        reply = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, str):
        seen = json_text(line[:40].decode("utf-8", "replace").rstrip("\n"))
        raise AutoresearchError(
            f"line {number} of the input is not a JSON string ({seen}); encode each raw reply as "
            "one JSON string a line"
        )
    return reply


def _fields(checked: Checked) -> dict[str, object]:
    return {
        **checked.verdict.model_dump(),
        "proposal": checked.proposal and checked.proposal.model_dump(),
        "config_hash": checked.config and checked.config.config_hash,
    }
