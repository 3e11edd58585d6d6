"""Check replies in the published loop's form, one for each kind in its bench of 27 cases.

The bench is at github.com/manavsehgal/ai-field-notes, articles/
guardrails-for-code-generation/evidence/cases.json. Under spark-354m with that loop's budget of 30
steps and its default of fp8, this product returns the published verdict in all 27 cases and the
published rail in all 17 refusals. Two kinds of reply, refused there, are accepted here since: a
number in quotes, and an object of the form next to one of another form. The cases below are of the
same kinds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent.commands.night.check import check
from agent.menu.files import load_menu
from agent.menu.replies import read_reply
from agent.menu.reply_objects import ReplyError

app = typer.Typer()
app.command()(check)


def said(knob: object, value: object, **more: object) -> str:
    return json.dumps({"knob": knob, "new_value": value, "reason": "because", **more})


CASES = (
    (said("lr", 1e-4), None),
    (said("grad_clip", 0.5), None),
    (said("precision", "bf16"), None),
    (said("n_head", 8), None),
    ("I think a lower rate would do.", "schema"),
    (json.dumps({"knob": "lr", "new_value": 1e-4}), "schema"),
    (said("lr", 1e-4, command="rm"), "schema"),
    (json.dumps({"knob": "lr", "new_value": 1e-4, "reason": "x" * 1200}), "schema"),
    (said("lr", 1e-4) + '\n{"command": "rm"}', None),  # one object of the form among others
    (said("lr", 1e-4) + "\n" + said("lr", 2e-4), "schema"),
    (said("learning_rate", 1e-4), "menu"),
    (said("lr", 1.0), "range"),
    (said("n_head", 7), "range"),
    (said("lr", "0.0001"), None),  # a number in quotes keeps its value
    (said("lr", "0.0001x"), "range"),
    (said("lr_warmup", 26), "cross"),
)


@pytest.fixture(scope="module")
def published_menu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return spark-354m as the published loop ran it: 30 steps, and fp8 by default."""
    text = load_menu("spark-354m").toml
    before, after = text.split("[knobs.precision]")
    after = after.replace('default = "bf16"', 'default = "fp8"', 1)
    text = f"{before}[knobs.precision]{after}".replace('"60 steps"', '"30 steps"')
    path = tmp_path_factory.mktemp("menu") / "published.toml"
    path.write_text(text)
    return path


def test_each_kind_is_allowed_or_refused_by_the_rail_it_was_published_for(
    published_menu: Path,
) -> None:
    stdin = "".join(json.dumps(raw) + "\n" for raw, _ in CASES)
    options = ["--menu", str(published_menu), "--json"]
    done = CliRunner().invoke(app, options, stdin)
    assert done.exception is None, done.output
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["rail"] for verdict in verdicts] == [rail for _, rail in CASES]
    assert verdicts[0]["proposal"] == {"changes": {"lr": 1e-4}, "reason": "because"}


def test_the_two_forms_do_not_mix() -> None:
    ours = json.dumps({"changes": {"lr": 1e-4}, "reason": "because"})
    with pytest.raises(ReplyError):
        read_reply(said("lr", 1e-4))
    with pytest.raises(ReplyError, match="new_value"):
        read_reply(ours, "single-knob")
    with pytest.raises(ReplyError):
        read_reply(said(3, 1e-4), "single-knob")
    with pytest.raises(ReplyError):
        read_reply(said("lr", [1e-4]), "single-knob")
