"""Check which proposer makes each proposal, and which one replaces it on failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.proposers.base import Memory, Offer, Proposer, ProposerError
from agent.proposers.choice import choose_proposer
from agent.proposers.hybrid import MODEL_WINDOW, FallbackProposer, HybridProposer
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.priors import Prior, PriorConfig
from agent.proposers.sampler import SamplerProposer
from agent.search.campaign_settings import new_settings
from agent.settings.environment import Environment
from autoresearch.errors import MachineryError
from autoresearch.values import Scalar
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of, raw
from tests.support.openai_server import OpenAIServer, refuses, says
from tests.support.rows import iteration_row, ok, trial
from tests.support.scripted import ScriptedProposer
from trainer.spec import Budget
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, ProposerRecord
from trajectory.rows import Decision

QUICK = Patience(timeout_s=0.5, deadline_s=0.5, probation_s=0.2, wait=lambda _: 0.01)
SUGGESTED = raw({"norm": "rmsnorm"})
OWN = raw({"lr": 0.0041})


class Model:
    """A model that always has the same idea, or none."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.asked: list[tuple[int, Mapping[str, Scalar] | None]] = []

    def propose(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Offer:
        self.asked.append((memory.iter, suggestion))
        if self.error is not None:
            raise self.error
        return Offer(OWN, ProposerRecord(kind="llm", overrode=dict(suggestion or {})))


def at(iteration: int, seed: int = 7) -> Memory:
    return replace(fresh_memory(), iter=iteration, seed=seed)


def sampler() -> Proposer:
    return ScriptedProposer([SUGGESTED] * 1000)


def llm_at(server: OpenAIServer) -> LlmProposer:
    endpoint = Endpoint(server.url, "tiny", patience=QUICK)
    return LlmProposer(endpoint, RAILS, Prompter(Budget()))


def with_record(
    memory: Memory, turns: str, kind: str = "llm", latency_s: float = 0.0, trial_s: float = 0.0
) -> Memory:
    """Return the memory after these iterations of one proposer: ``k`` is a keep, ``.`` is none."""
    for number, turn in enumerate(turns):
        changed = MENU.apply(memory.reference, {"lr": 1e-3 * (1 + (memory.iter + number) / 1e4)})
        decision = Decision(action="keep" if turn == "k" else "discard")
        record = ProposerRecord(kind=kind, latency_s=latency_s)
        run = trial(memory.iter + number, changed, 0, ok(3.0)).model_copy(
            update={"wall_s": trial_s}
        )
        memory.evidence.add(
            iteration_row(memory.iter + number, changed, (run,), decision=decision, proposer=record)
        )
    return replace(memory, iter=memory.iter + len(turns))


def turns_of(share: float, warmup: int, until: int) -> list[int]:
    hybrid = HybridProposer(sampler(), Model(), share=share, warmup=warmup)
    return [n for n in range(1, until + 1) if hybrid.asks_llm(at(n), "scripted")]


def test_the_model_has_no_turn_during_warm_up_and_is_lent_a_share_of_the_rest() -> None:
    assert turns_of(0.05, 10, 70) == [11, 31, 51]
    assert len(turns_of(0.3, 10, 1010)) == 300
    assert turns_of(0, 0, 100) == []
    assert turns_of(1, 3, 6) == [4, 5, 6]


def test_a_keep_earns_the_model_turns_until_it_is_kept_less_often_than_the_sampler() -> None:
    hybrid = HybridProposer(sampler(), Model(), share=0.01, warmup=0)
    memory = with_record(at(1), "k" + 9 * ".", "scripted")
    assert not hybrid.asks_llm(memory, "scripted")
    memory = with_record(memory, "k")
    for _ in range(9):
        assert hybrid.asks_llm(memory, "scripted")
        memory = with_record(memory, ".")
    assert not hybrid.asks_llm(memory, "scripted"), "one of ten is what the sampler does"


@pytest.mark.parametrize(("latency_s", "earned"), [(0.0, 6), (10.0, 3), (50.0, 1), (90.0, 0)])
def test_a_slow_model_has_to_be_kept_the_more_often(latency_s: float, earned: int) -> None:
    """The sampler beside it is kept in one iteration of seven, and trials take ten seconds."""
    hybrid = HybridProposer(sampler(), Model(), share=0.01, warmup=0)
    memory = with_record(at(1), 4 * "......k", "scripted", trial_s=10.0)
    memory = with_record(memory, "k", latency_s=latency_s, trial_s=10.0)
    turns = 0
    while hybrid.asks_llm(memory, "scripted"):
        memory = with_record(memory, ".", latency_s=latency_s, trial_s=10.0)
        turns += 1
    assert turns == earned


def test_a_quick_model_earns_none_the_sooner() -> None:
    hybrid = HybridProposer(sampler(), Model(), share=0.01, warmup=0)
    memory = with_record(at(1), 10 * ".k", "scripted", trial_s=10.0)
    memory = with_record(memory, "k..", trial_s=1.0)
    assert not hybrid.asks_llm(memory, "scripted")


def test_what_was_earned_long_ago_is_used_up() -> None:
    hybrid = HybridProposer(sampler(), Model(), share=0.01, warmup=0)
    memory = with_record(with_record(at(1), "k" + 29 * ".", "scripted"), 20 * "k")
    wasted = 0
    while hybrid.asks_llm(memory, "scripted"):
        memory = with_record(memory, ".")
        wasted += 1
    assert wasted == MODEL_WINDOW


def test_turns_follow_from_the_rows_alone() -> None:
    """A new hybrid proposer makes the same choice as one that ran all night."""
    memory = with_record(with_record(at(1), 20 * ".", "scripted"), "k.")
    old = HybridProposer(sampler(), Model())
    old.propose(memory)
    turn = old.asks_llm(memory, "scripted")
    assert turn
    assert HybridProposer(sampler(), Model()).asks_llm(memory, "scripted") == turn
    evidence = Evidence.restore(memory.evidence.tally, memory.evidence.configs.values())
    assert old.asks_llm(replace(memory, evidence=evidence), "scripted") == turn


@pytest.mark.parametrize(("share", "asked"), [(0.0, 0), (1.0, 40)])
def test_shares_of_nothing_and_everything(share: float, asked: int) -> None:
    model = Model()
    hybrid = HybridProposer(sampler(), model, share=share, warmup=10)
    for iteration in range(1, 51):
        hybrid.propose(at(iteration))
    assert len(model.asked) == asked


def test_the_model_sees_the_suggestion_and_may_override_it() -> None:
    model = Model()
    offer = HybridProposer(sampler(), model, share=1, warmup=0).propose(at(1))
    assert model.asked == [(1, {"norm": "rmsnorm"})]
    assert offer.raw == OWN
    assert offer.record.kind == "llm"
    assert offer.record.overrode == {"norm": "rmsnorm"}


def test_what_turns_more_knobs_than_a_model_is_asked_for_is_not_suggested() -> None:
    changes = {"norm": "rmsnorm", "beta1": 0.8, "beta2": 0.9, "d_ff": 256}
    for count in (3, 4):
        suggested = raw(dict(list(changes.items())[:count]))
        model = Model()
        hybrid = HybridProposer(ScriptedProposer([suggested]), model, share=1, warmup=0)
        hybrid.propose(replace(at(1), max_changes=len(MENU.knobs)))
        assert [suggestion is not None for _, suggestion in model.asked] == [count == 3]


def test_without_a_model_it_is_the_sampler() -> None:
    hybrid = HybridProposer(SamplerProposer(RAILS), None, share=1, warmup=0)
    memory = memory_of(30)
    offer = hybrid.propose(memory)
    assert offer.raw == SamplerProposer(RAILS).propose(memory).raw
    assert offer.record.fallback is None


def test_a_failing_model_leaves_the_samplers_own_offer_and_is_asked_again() -> None:
    attempts = (Attempt(raw="prose", latency_s=2.5),)
    model = Model(ProposerError("it rambles", attempts, model="tiny", prompt_sha256="abc"))
    hybrid = HybridProposer(sampler(), model, share=1, warmup=0)
    record = hybrid.propose(at(1)).record
    assert (record.kind, record.fallback, record.attempts) == ("scripted", "it rambles", attempts)
    assert (record.model, record.prompt_sha256) == ("tiny", "abc")
    assert record.latency_s >= 2.5
    assert record.overrode is None
    hybrid.propose(at(2))
    assert [iteration for iteration, _ in model.asked] == [1, 2]


def test_a_bug_in_a_proposer_costs_its_turn_alone() -> None:
    bug = UnicodeEncodeError("ascii", "\u201csk", 0, 1, "ordinal not in range")
    for proposer in (
        HybridProposer(sampler(), Model(bug), share=1, warmup=0),
        FallbackProposer(Model(bug), sampler()),
    ):
        record = proposer.propose(at(1)).record
        assert record.kind == "scripted"
        assert "UnicodeEncodeError" in (record.fallback or "")


@pytest.mark.parametrize("error", [MachineryError("the disk is full"), KeyboardInterrupt()])
def test_a_full_disk_and_a_stop_end_the_turn(error: BaseException) -> None:
    with pytest.raises(type(error)):
        HybridProposer(sampler(), Model(error), share=1, warmup=0).propose(at(1))


def test_a_night_with_a_dead_endpoint_is_the_samplers_night() -> None:
    with OpenAIServer([refuses(401, "bad key")]) as server:
        hybrid = HybridProposer(SamplerProposer(RAILS), llm_at(server), share=1, warmup=0)
        memory = memory_of(30)
        offer = hybrid.propose(memory)
    assert offer.raw == SamplerProposer(RAILS).propose(memory).raw
    assert offer.record.kind == "sampler"
    assert offer.record.fallback is not None
    assert "HTTP 401" in offer.record.fallback
    assert offer.record.attempts[0].error == offer.record.fallback


def test_rails_that_fail_thrice_fall_back_and_the_model_recovers() -> None:
    bad = says(raw({"lr": 99}))
    with OpenAIServer([bad, bad, bad, says(OWN)]) as server:
        proposer = FallbackProposer(llm_at(server), SamplerProposer(RAILS))
        first = proposer.propose(at(1))
        second = proposer.propose(at(2))
    assert first.record.kind == "sampler"
    assert len(first.record.attempts) == 3
    assert first.record.fallback is not None
    assert RAILS.check(first.raw, fresh_memory().reference).verdict.allowed
    assert (second.raw, second.record.kind, second.record.fallback) == (OWN, "llm", None)


def test_a_fallback_that_fails_too_is_an_error() -> None:
    proposer = FallbackProposer(Model(ProposerError("down")), ScriptedProposer([]))
    with pytest.raises(ProposerError, match="script ends"):
        proposer.propose(at(1))


def test_a_script_is_followed_by_iteration_not_by_call() -> None:
    scripted = ScriptedProposer(["a", "b"])
    assert [scripted.propose(at(n)).raw for n in (2, 1, 2)] == ["b", "a", "b"]


@pytest.mark.parametrize("kind", ["sampler", "hybrid"])
def test_chance_takes_the_turn_of_a_sampler_that_fails(kind: str, tmp_path: Path) -> None:
    unusable = PriorConfig({"a knob of no menu": 1e-3}, 0.0)
    prior = Prior("x", "0" * 64, 20, (unusable,) * 20, (), 0, None)
    with pytest.raises(KeyError):
        SamplerProposer(RAILS).propose(replace(at(1), priors=(prior,)))
    settings = new_settings(MENU, "cpu-tiny", {"proposer": kind})
    chosen = choose_proposer(settings, Environment(), RAILS, directory=tmp_path, priors=(prior,))
    record = chosen.proposer.propose(at(1)).record
    assert record.kind == "random"
    assert "KeyError" in (record.fallback or "")
