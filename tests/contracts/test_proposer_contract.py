from collections.abc import Callable, Iterator

import pytest

from agent.proposers.base import Proposer, ProposerError, SearchView
from agent.proposers.code import LibraryProposer
from agent.proposers.draws import RandomProposer
from agent.proposers.hybrid import FallbackProposer, HybridProposer
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.llm.wire import Patience
from agent.proposers.sampler import SamplerProposer
from tests.support.memories import RAILS, fresh_memory, memory_of, raw
from tests.support.openai_server import OpenAIServer, refuses, says
from tests.support.rows import iteration_row
from tests.support.scripted import ScriptedProposer
from trainer.schema import Budget
from trajectory.proposals import Proposal
from trajectory.rows import dump_row, parse_row

QUICK = Patience(timeout_s=2, deadline_s=2, wait=lambda _: 0.01)
REPLY = raw({"lr": 0.00413}, "a higher rate")


def llm(url: str) -> LlmProposer:
    return LlmProposer(Endpoint(url, "tiny", patience=QUICK), RAILS, Prompter(Budget()))


MAKERS: dict[str, Callable[[str], Proposer]] = {
    "random": lambda _: RandomProposer(RAILS),
    "library": lambda _: LibraryProposer(RAILS, SamplerProposer(RAILS)),
    "sampler": lambda _: SamplerProposer(RAILS),
    "scripted": lambda _: ScriptedProposer([REPLY] * 100),
    "llm": llm,
    "hybrid": lambda url: HybridProposer(SamplerProposer(RAILS), llm(url).choose, RAILS, share=1),
    "hybrid without a model": lambda _: HybridProposer(SamplerProposer(RAILS), None, RAILS),
    "llm with a fallback": lambda url: FallbackProposer(llm(url), SamplerProposer(RAILS)),
}
KINDS = {"random", "sampler", "scripted", "llm"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with OpenAIServer([says(REPLY)]) as server:
        yield server.url


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest, url: str) -> Callable[[], Proposer]:
    maker = MAKERS[request.param]
    return lambda: maker(url)


MEMORIES = {"first": fresh_memory, "mid-campaign": lambda: memory_of(40)}


@pytest.fixture(params=list(MEMORIES))
def view(request: pytest.FixtureRequest) -> SearchView:
    return MEMORIES[request.param]()


def state(view: SearchView) -> object:
    evidence = view.evidence
    scores = [(one.config_hash, dict(one.scores)) for one in evidence.configs.values()]
    return (view.reference, view.iter, evidence.iterations, scores)


def test_an_offer_follows_from_the_memory(make: Callable[[], Proposer], view: SearchView) -> None:
    before = state(view)
    proposer = make()
    offer = proposer.propose(view)
    assert proposer.propose(view).reply == make().propose(view).reply == offer.reply
    assert state(view) == before
    verdict = RAILS.check(offer.reply, view.reference, view.evidence.configs).verdict
    assert verdict.allowed, verdict.why
    proposal = Proposal(changes=dict(offer.reply.changes), reason=offer.reply.reason)
    assert 1 <= len(proposal.changes) <= view.max_changes
    assert 0 < len(proposal.reason) <= 500
    assert offer.record.kind in KINDS
    assert offer.record.latency_s >= 0
    row = iteration_row(view.iter, None, proposer=offer.record)
    assert parse_row(dump_row(row)) == row


def test_what_ends_a_turn_is_a_proposer_error() -> None:
    with OpenAIServer([refuses(401)]) as server:
        failing: list[Proposer] = [
            llm(server.url),
            ScriptedProposer([]),
            FallbackProposer(llm(server.url), ScriptedProposer([])),
            HybridProposer(ScriptedProposer([]), llm(server.url).choose, RAILS),
        ]
        for proposer in failing:
            with pytest.raises(ProposerError) as raised:
                proposer.propose(fresh_memory())
            assert "\n" not in str(raised.value)
