import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import load_menu, parse_menu
from agent.menu.reply_objects import ReplyError
from agent.menu.suggestions import SuggestedMenu, suggestions_schema
from tests.support.openai_server import OpenAIServer, says, schema_of

MENU = load_menu("cpu-tiny")
SUGGESTIONS = [
    {"knob": "lr", "values": [0.02, "0.002"], "reason": "rates above 0.002 \x1b[31m"},
    {"knob": "n_head", "values": [8, 4], "reason": "at least four heads"},
    {"knob": "norm", "values": ["rmsnorm"], "reason": "always RMSNorm"},
    {"knob": "lr", "values": [0.002, 3.0], "reason": "beyond the menu"},
    {"knob": "colour", "values": ["red"], "reason": "no knob"},
    {"knob": "d_ff"},
    "more data",
]
REPLY = json.dumps({"suggestions": SUGGESTIONS})


def test_a_domain_is_only_narrowed_and_what_the_menu_cannot_take_is_left_out() -> None:
    found = SuggestedMenu.of(MENU, f"Here it is:\n```json\n{REPLY}\n```")
    menu = parse_menu(found.toml, "suggested")
    assert menu.domains["lr"].ends == (0.002, 0.02)
    assert menu.defaults["lr"] == 0.002, "0.001 is below it now"
    assert menu.domains["n_head"].ends == (4, 8)
    assert menu.defaults["n_head"] == MENU.defaults["n_head"]
    assert "norm" not in menu.knobs
    assert menu.constants["norm"] == "rmsnorm"
    untouched = set(MENU.knobs) - {"lr", "n_head", "norm"}
    assert all(menu.knobs[name] == MENU.knobs[name] for name in untouched)
    assert list(found.reasons) == ["lr", "n_head", "norm"]
    assert len(found.left_out) == 4


@pytest.mark.parametrize("raw", ["no", "[1]", '{"suggestions": 3}', '{"knob": "lr"}'])
def test_a_reply_without_suggestions_is_an_error(raw: str) -> None:
    with pytest.raises(ReplyError):
        SuggestedMenu.of(MENU, raw)


def test_the_diff_is_printed_and_only_a_named_file_is_written(tmp_path: Path) -> None:
    program, out = tmp_path / "directions.md", tmp_path / "mine.toml"
    program.write_text("Only rates above 0.002, please.")
    with OpenAIServer([says(REPLY)]) as server:
        environment = {"AUTORESEARCH_LLM_BASE_URL": server.url, "AUTORESEARCH_LLM_MODEL": "tiny"}
        asked = ["suggest", "cpu-tiny", "--program", str(program)]
        seen = CliRunner().invoke(app, asked, env=environment)
        assert [path.name for path in tmp_path.iterdir()] == ["directions.md"]
        as_json = CliRunner().invoke(app, [*asked, "--json", f"--out={out}"], env=environment)
        (first, _) = server.chats
    assert seen.exit_code == as_json.exit_code == 0, seen.output
    assert schema_of(first) == suggestions_schema(MENU)
    assert program.read_text() in first["messages"][0]["content"]
    lines = seen.stdout.splitlines()
    assert {"-low = 1e-4", "+low = 0.002", '+norm = "rmsnorm"'} <= set(lines)
    assert "\x1b" not in seen.stdout
    report = json.loads(as_json.stdout)
    assert report["diff"] == lines[: len(report["diff"])]
    assert len(report["left_out"]) == 4
    assert load_menu(str(out)).domains["lr"].ends == (0.002, 0.02)
