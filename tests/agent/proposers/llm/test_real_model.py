"""Test a small real language model behind the servers that people run at home.

The tests are skipped if the servers are not installed: see bench/small_model.py.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.proposers.base import ProposerError
from agent.proposers.llm.completions import Message
from agent.proposers.llm.endpoint import ContextError, Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.llm.wire import Patience
from agent.session.machine_checks import endpoint
from agent.settings.environment import Environment
from bench.small_model import SERVERS, small_model, why_not
from tests.support.campaigns import Toy
from tests.support.memories import RAILS, memory_of
from tests.support.programs import finished
from trainer.schema import Budget

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENT = Patience(timeout_s=600, deadline_s=1200)
CONTEXT = 2048
NIGHT = 5
"""Iterations of the campaign."""
MODES = {"llama-server": "json_schema", "llama-cpp-python": "json_object.schema"}


@pytest.fixture(scope="module", params=SERVERS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    name = request.param
    missing = why_not(name)
    if missing is not None:
        pytest.skip(f"{name}: {missing}")
    log = tmp_path_factory.mktemp("server") / "log"
    with small_model(name, log, context=CONTEXT) as url:
        yield name, url


def test_it_proposes_within_a_short_context(served: tuple[str, str]) -> None:
    name, url = served
    endpoint = Endpoint(url, patience=PATIENT)
    proposer = LlmProposer(endpoint, RAILS, Prompter(Budget()))
    proposed = 0
    for iterations in (0, 10, 40):
        memory = memory_of(iterations)
        # A server that has not reported its context, and refused nothing, may be filled.
        longest = CONTEXT if endpoint.context is None else CONTEXT - CONTEXT // 8
        try:
            offer = proposer.propose(memory)
        except ProposerError as error:
            attempts = error.attempts
            assert all(attempt.error is None for attempt in attempts), "the server served them all"
        else:
            attempts = offer.record.attempts
            assert RAILS.check(offer.reply, memory.reference, memory.evidence.configs).config
            proposed += 1
        assert {attempt.mode for attempt in attempts} == {MODES[name]}
        for attempt in attempts:
            assert attempt.prompt_tokens is not None
            assert attempt.prompt_tokens < longest
    assert proposed


def test_it_says_how_long_a_question_may_be(served: tuple[str, str]) -> None:
    name, url = served
    endpoint = Endpoint(url, patience=PATIENT)
    assert endpoint.context == (CONTEXT if name == "llama-server" else None)
    with pytest.raises(ContextError, match="--prompt-tokens"):
        endpoint.ask([Message("user", "hello " * 3000)], {"type": "object"})
    assert endpoint.context == CONTEXT


def test_the_estimate_of_a_prompts_length_errs_upwards(served: tuple[str, str]) -> None:
    _, url = served
    prompt = Prompter(Budget()).prompt(memory_of(60), context=CONTEXT)
    endpoint = Endpoint(url, patience=PATIENT, max_tokens=1)
    reply = endpoint.ask(prompt.messages, {"type": "object"})
    assert reply.prompt_tokens is not None
    assert 0.7 * prompt.tokens < reply.prompt_tokens <= prompt.tokens


def test_the_doctor_hears_its_proposal(served: tuple[str, str]) -> None:
    name, url = served
    environment = Environment(llm_base_url=url, llm_timeout_s=600)
    checks = [endpoint(environment) for _ in range(NIGHT)]  # a small model's may be refused
    found = next((check.found for check in checks if check.state == "good"), "")
    print(f"\n{name}: {found}")
    assert f"mode {MODES[name]}" in found
    assert "tokens/s" in found


@pytest.fixture(scope="module")
def night(served: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """Run a campaign in which the model proposes, through the command."""
    name, url = served
    toy = Toy(tmp_path_factory.mktemp("night"))
    toy.environment |= {"AUTORESEARCH_LLM_BASE_URL": url, "AUTORESEARCH_LLM_TIMEOUT_S": "600"}
    done = toy.loop(NIGHT, "--proposer=llm")
    print(f"\n{name}:\n{done.stdout}")
    assert done.returncode == 0, done.stderr
    return toy


@pytest.fixture(scope="module")
def chats(night: Toy) -> Path:
    """Export the model's accepted replies for fine-tuning."""
    out = night.home / "chat.jsonl"
    done = night.run("export", "--to=chat-jsonl", f"--campaign={night.campaign}", f"--out={out}")
    assert done.returncode == 0, done.stderr
    return out


def test_a_campaign_trains_what_it_proposed(served: tuple[str, str], night: Toy) -> None:
    rows = night.iterations()
    assert len(rows) == NIGHT
    attempts = [attempt for row in rows for attempt in row["proposer"]["attempts"]]
    assert [attempt["error"] for attempt in attempts] == [None] * len(attempts)
    assert {attempt["mode"] for attempt in attempts} == {MODES[served[0]]}
    own = [row for row in rows if row["proposer"]["kind"] == "llm"]
    assert own, [row["proposer"] for row in rows]
    assert {row["trials"][0]["result"]["status"] for row in own} == {"ok"}


def test_what_it_said_is_a_data_set_of_chats(night: Toy, chats: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    read = datasets.load_dataset(
        "json", data_files=str(chats), split="train", cache_dir=str(tmp_path / "cache")
    )
    own = [row["proposer"] for row in night.iterations() if row["proposer"]["kind"] == "llm"]
    assert read.column_names == ["messages"]
    said = [[turn["role"] for turn in chat["messages"]] for chat in read]
    assert said == [["system", "user", "assistant"]] * len(own)
    replies = [chat["messages"][-1]["content"] for chat in read]
    assert replies == [record["attempts"][-1]["raw"] for record in own]


def test_fine_tuning_learns_the_replies_and_no_more(chats: Path, tmp_path: Path) -> None:
    for needed in ("trl", "transformers", "datasets"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    module = ("-m", "tests.support.fine_tuning")
    trained = finished(sys.executable, *module, chats, tmp_path, timeout=600)
    assert trained.returncode == 0, trained.stderr
    told = json.loads(trained.stdout.splitlines()[-1])
    first = json.loads(chats.read_text().splitlines()[0])
    assert told["learned"] == first["messages"][-1]["content"] + "<|im_end|>"
    assert len(told["losses"]) == 2
    assert all(0 < loss < 20 for loss in told["losses"])
