"""Test ``autoresearch check``: proposals in, verdicts out, in any published form of a reply."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent.commands.night.propose import MAX_LINE_BYTES, check
from agent.menu.files import load_menu
from autoresearch.errors import AutoresearchError

GOOD = '{"changes": {"lr": 0.002}, "reason": "x"}'
BAD = '{"changes": {"lr": 2}, "reason": "x"}'

app = typer.Typer()
app.command()(check)


def lines(*replies: str) -> str:
    return "".join(json.dumps(reply) + "\n" for reply in replies)


def run(stdin: str | bytes, *options: str) -> list[str]:
    result = CliRunner().invoke(app, ["--menu", "cpu-tiny", *options], stdin)
    assert result.exception is None, result.output
    return result.stdout.splitlines()


def test_json_carries_the_proposal_and_the_hash() -> None:
    allowed, refused, prose = (json.loads(line) for line in run(lines(GOOD, BAD, ""), "--json"))
    menu = load_menu("cpu-tiny")
    proposal = {"changes": {"lr": 0.002}, "reason": "x"}

    assert allowed == {
        "allowed": True,
        "rail": None,
        "why": "",
        "proposal": proposal,
        "config_hash": menu.apply(menu.baseline, {"lr": 0.002}).config_hash,
    }
    assert (refused["allowed"], refused["rail"], refused["config_hash"]) == (False, "range", None)
    assert refused["proposal"]["changes"] == {"lr": 2}
    assert (prose["rail"], prose["proposal"]) == ("schema", None)


@pytest.mark.parametrize(
    "line",
    [
        *(GOOD.encode(), b"3", b"", b'"unfinished', b"[" * 100_000, b'"a" "b"', b'"\xff"'),
        b" " * (MAX_LINE_BYTES + 1),
    ],
    ids=range(8),
)
def test_a_line_that_is_no_json_string_ends_it_after_the_verdicts_before(line: bytes) -> None:
    good = lines(GOOD).encode()
    result = CliRunner().invoke(app, ["--menu", "cpu-tiny"], good + line + b"\n" + good)

    assert result.stdout.splitlines() == ["allowed"]
    assert isinstance(result.exception, AutoresearchError)
    assert "line 2 " in str(result.exception)
    assert len(str(result.exception)) < 300


def test_the_last_line_needs_no_newline_and_no_line_is_needed() -> None:
    assert run(lines(GOOD).rstrip("\n")) == ["allowed"]
    assert run("") == []


PROGRAM = "import typer; from agent.commands.night.propose import check; typer.run(check)"


def test_a_verdict_comes_before_the_next_line_is_written() -> None:
    command = [sys.executable, "-c", PROGRAM, "--menu", "cpu-tiny"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(GOOD))
        assert process.stdout.readline() == "allowed\n"
        process.stdin.write(lines("x" * 10_000_000))
        assert process.stdout.readline().startswith("refused by schema: the reply is 10,000,000")
        process.stdin.close()
        assert process.wait() == 0


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
    knob = '[knobs.precision]\ntype = "choice"\nchoices = ["bf16", "fp8"]\ndefault = "fp8"\n\n'
    text = text.replace('[constants]\nprecision = "bf16"\n', f"{knob}[constants]\n")
    text = text.replace('"60 steps"', '"30 steps"')
    path = tmp_path_factory.mktemp("menu") / "published.toml"
    path.write_text(text)
    return path


def test_each_published_kind_is_allowed_or_refused_by_its_rail(published_menu: Path) -> None:
    stdin = "".join(json.dumps(raw) + "\n" for raw, _ in CASES)
    options = ["--menu", str(published_menu), "--json"]
    done = CliRunner().invoke(app, options, stdin)
    assert done.exception is None, done.output
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["rail"] for verdict in verdicts] == [rail for _, rail in CASES]
    assert verdicts[0]["proposal"] == {"changes": {"lr": 1e-4}, "reason": "because"}
