"""Tried with a stand-in for agent programs, not with the programs themselves."""

import json
import os
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent.proposers.base import ProposerError
from agent.proposers.choice import language_model
from agent.proposers.llm.command import MODE, CommandModel
from agent.proposers.llm.completions import Message
from agent.proposers.llm.failures import EndpointError
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError
from autoresearch.layout import JOURNAL_FILE
from tests.support.endpoints import ANSWER, CHAT, SCHEMA
from tests.support.memories import RAILS, fresh_memory, raw
from tests.support.places import ROOT
from tests.support.processes import alive
from tests.support.rows import campaign_row, iteration_row, write_journal
from tests.support.waiting import wait_until
from trainer.schema import Budget
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.track_record import TrackRecord

GOOD = raw({"lr": 0.004}, "a higher rate")


def command(folder: Path, *words: str) -> str:
    program = ROOT / "tests" / "support" / "agent_program.py"
    return shlex.join([sys.executable, str(program), str(folder), *words])


def model(folder: Path, *words: str, **settings: Any) -> CommandModel:
    return CommandModel(Environment(proposer_command=command(folder, *words), **settings))


def asked(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("asked-*.json"))
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.parametrize(
    ("way", "prompt_tokens", "completion_tokens", "cost_usd"),
    [
        ("text", None, None, None),
        ("claude", 100, 7, 0.25),
        ("codex", 100, 7, None),
        ("gemini", None, None, None),
        ("deaf", None, None, None),
        ("noisy", None, None, None),
    ],
)
def test_the_reply_is_what_the_program_prints_or_the_final_message_in_its_json(
    tmp_path: Path,
    way: str,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    cost_usd: float | None,
) -> None:
    question = [*CHAT, Message("assistant", "{}"), Message("user", "é" * 200_000)]
    reply = model(tmp_path, way, ANSWER).ask(question, SCHEMA)
    assert reply.text.strip() == ANSWER
    assert (reply.error, reply.mode) == (None, MODE)
    assert (reply.prompt_tokens, reply.completion_tokens) == (prompt_tokens, completion_tokens)
    assert reply.cost_usd == cost_usd
    (seen,) = asked(tmp_path)
    if way != "deaf":
        assert all(each.content in seen["question"] for each in question)


def test_it_starts_in_an_empty_folder_with_the_users_login_and_none_of_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTORESEARCH_LLM_API_KEY", "sk-ours-0123456789")
    monkeypatch.setenv("WANDB_API_KEY", "tracker-0123456789")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-users-0123456789")
    model(tmp_path, "text", ANSWER).ask(CHAT, SCHEMA)
    (seen,) = asked(tmp_path)
    assert seen["here"] == []
    assert seen["environ"]["ANTHROPIC_API_KEY"] == "sk-users-0123456789"
    assert not any(name.startswith("AUTORESEARCH_") for name in seen["environ"])
    assert "WANDB_API_KEY" not in seen["environ"]


@pytest.mark.parametrize(
    ("way", "said", "cost_usd"),
    [
        ("fails", "please log in", None),
        ("claude-error", "credit is too low", 0.125),
        ("codex-error", "usage limit reached", None),
        ("gemini-error", "quota exceeded", None),
        ("text", "", None),
        ("floods", "", None),
    ],
)
def test_each_failure_is_one_sentence(
    tmp_path: Path, way: str, said: str, cost_usd: float | None
) -> None:
    with pytest.raises(EndpointError) as raised:
        model(tmp_path, way).ask(CHAT, SCHEMA)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.cost_usd == cost_usd


def test_a_program_that_is_missing_is_named_and_one_that_cannot_be_split_is_refused(
    tmp_path: Path,
) -> None:
    absent = CommandModel(Environment(proposer_command="no-such-program -p"))
    with pytest.raises(EndpointError, match="no-such-program"):
        absent.ask(CHAT, SCHEMA)
    with pytest.raises(EndpointError):
        CommandModel(Environment(proposer_command=str(tmp_path))).ask(CHAT, SCHEMA)
    for words in ("claude 'p", " "):
        with pytest.raises(SettingsError):
            CommandModel(Environment(proposer_command=words))


def test_a_program_that_hangs_ends_with_its_group_at_the_limit(tmp_path: Path) -> None:
    hanging = model(tmp_path, "hangs", llm_timeout_s=0.5, llm_deadline_s=4)
    for limit in ("4 s", "0.5 s"):  # after a question without an answer the next one is short
        with pytest.raises(EndpointError, match=limit):
            hanging.ask(CHAT, SCHEMA)
    children = [int(path.read_text()) for path in tmp_path.glob("child")]
    started = [*children, *(seen["pid"] for seen in asked(tmp_path))]
    wait_until(lambda: not any(alive(pid) for pid in started))


@pytest.mark.parametrize("way", ["leaves", "escapes"])
def test_a_process_that_keeps_the_pipes_open_delays_no_reply(tmp_path: Path, way: str) -> None:
    reply = model(tmp_path, way, ANSWER, llm_deadline_s=50).ask(CHAT, SCHEMA)
    assert reply.text.strip() == ANSWER
    assert reply.latency_s < 45
    child = int((tmp_path / "child").read_text())
    if way == "leaves":
        wait_until(lambda: not alive(child))
    else:
        os.kill(child, 9)


def test_closing_ends_the_question_in_progress_and_asks_no_other(tmp_path: Path) -> None:
    hanging = model(tmp_path, "hangs")
    failed: list[Exception] = []

    def ask() -> None:
        try:
            hanging.ask(CHAT, SCHEMA)
        except ProposerError as error:
            failed.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_until((tmp_path / "child").exists)
    began = time.monotonic()
    hanging.close()
    thread.join()
    assert time.monotonic() - began < 30
    wait_until(lambda: not alive(int((tmp_path / "child").read_text())))
    ask()
    assert len(failed) == 2
    assert len(asked(tmp_path)) == 1


def test_calls_and_money_are_limited_over_all_sessions_of_a_campaign(tmp_path: Path) -> None:
    environment = Environment(
        proposer_command=command(tmp_path, "claude", ANSWER), proposer_calls=4, proposer_usd=0.5
    )
    limited = CommandModel(environment)
    for _ in range(2):
        limited.ask(CHAT, SCHEMA)
    with pytest.raises(ProposerError, match="usd") as raised:
        limited.ask(CHAT, SCHEMA)
    assert not isinstance(raised.value, EndpointError), "nothing was asked"
    program = Path(sys.executable).name
    attempts = (Attempt(raw="", error="late"), Attempt(raw="{}", cost_usd=0.125))
    rows = [
        iteration_row(number, None, proposer=ProposerRecord(kind="llm", model=name, attempts=each))
        for number, name, each in [(1, program, attempts), (2, "another", attempts * 9)]
    ]
    write_journal(tmp_path / JOURNAL_FILE, [campaign_row(), *rows])
    environment = limited._limits
    resumed = language_model(environment, tmp_path)
    for _ in range(2):
        resumed.ask(CHAT, SCHEMA)
    with pytest.raises(ProposerError, match="calls"):
        resumed.ask(CHAT, SCHEMA)
    assert len(asked(tmp_path)) == 4


def test_a_proposal_of_a_command_has_the_record_of_an_endpoints(tmp_path: Path) -> None:
    llm = LlmProposer(model(tmp_path, "claude", GOOD), RAILS, Prompter(Budget()))
    record = llm.propose(fresh_memory()).record
    (attempt,) = record.attempts
    assert (record.kind, record.model) == ("llm", Path(sys.executable).name)
    assert (attempt.raw, attempt.mode, attempt.cost_usd) == (GOOD, MODE, 0.25)
    assert attempt.verdict == Verdict(allowed=True)
    track = TrackRecord()
    track.add(record.attempts * 2)
    assert track.usd == 0.5


def test_a_refused_reply_goes_back_with_its_correction_until_a_limit(tmp_path: Path) -> None:
    refused = model(tmp_path, "text", "no proposal", proposer_calls=2)
    with pytest.raises(ProposerError, match="calls") as raised:
        LlmProposer(refused, RAILS, Prompter(Budget())).propose(fresh_memory())
    assert [attempt.raw.strip() for attempt in raised.value.attempts] == ["no proposal"] * 2
    first, second = asked(tmp_path)
    assert second["question"].startswith(first["question"].rstrip())
    assert "no proposal" in second["question"]
