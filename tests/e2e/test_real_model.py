"""A small real language model, behind the servers that people run at home.

Skipped where they are not installed: see tests/support/real_model.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.proposers.base import ProposerError
from agent.proposers.llm.completions import Message
from agent.proposers.llm.endpoint import ContextError, Endpoint
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.settings.environment import Environment
from agent.workbench.doctor_endpoint import asked
from tests.support.memories import RAILS, memory_of
from tests.support.real_model import SERVERS, real_model, why_not
from trainer.spec import Budget

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1800)]
PATIENT = Patience(timeout_s=600, deadline_s=1200)
CONTEXT = 2048
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
    with real_model(name, log, context=CONTEXT) as url:
        yield name, url


def test_it_proposes_within_a_short_context(served: tuple[str, str], tmp_path: Path) -> None:
    """Most turns come to a proposal; which ones is the model's, and no two builds agree."""
    name, url = served
    endpoint = Endpoint(url, patience=PATIENT, modes_path=tmp_path / "modes.json")
    proposer = LlmProposer(endpoint, RAILS, Prompter(Budget()))
    proposed = 0
    for iterations in (0, 10, 40):
        memory = memory_of(iterations)
        try:
            offer = proposer.propose(memory)
        except ProposerError as error:
            attempts = error.attempts
            assert all(attempt.error is None for attempt in attempts), "the server served them all"
        else:
            attempts = offer.record.attempts
            assert RAILS.check(offer.raw, memory.reference, memory.evidence.configs).config
            proposed += 1
        assert {attempt.mode for attempt in attempts} == {MODES[name]}
        for attempt in attempts:
            assert attempt.prompt_tokens is not None
            assert attempt.prompt_tokens < CONTEXT - CONTEXT // 8
    assert proposed >= 2


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
    good, found = asked(Environment(llm_base_url=url, llm_timeout_s=600))
    assert good, found
    assert f"mode {MODES[name]}" in found
    assert "tokens/s" in found
