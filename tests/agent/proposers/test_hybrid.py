from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from agent.menu.replies import read_reply
from agent.proposers.base import Offer, Proposer, ProposerError, SearchView
from agent.proposers.choice import choose_proposer
from agent.proposers.draws import RandomProposer
from agent.proposers.hybrid import SIZE, FallbackProposer, HybridProposer, Slate
from agent.proposers.priors import Prior, PriorConfig
from agent.proposers.sampler import SamplerProposer
from agent.search.campaign_start import new_settings
from agent.settings.environment import Environment
from autoresearch.errors import MachineryError
from tests.support.memories import MENU, RAILS, fresh_memory, memory_of, raw
from tests.support.scripted import ScriptedProposer
from trajectory.evidence import Evidence
from trajectory.proposals import Arm, Attempt, ProposerRecord
from trajectory.track_record import Credit

SUGGESTED = raw({"norm": "rmsnorm"})
OWN = raw({"lr": 0.0041})


class Model:
    """A model that always has the same idea, or none."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.asked: list[tuple[int, Slate, Collection[Arm]]] = []

    def propose(self, view: SearchView) -> Offer:
        if self.error is not None:
            raise self.error
        return Offer(read_reply(OWN), ProposerRecord(kind="llm"))

    def choose(self, view: SearchView, slate: Slate, arms: Collection[Arm]) -> Offer:
        self.asked.append((view.iter, slate, arms))
        return self.propose(view)


def at(iteration: int, seed: int = 7) -> SearchView:
    return replace(fresh_memory(), iter=iteration, seed=seed)


def sampler() -> Proposer:
    return ScriptedProposer([SUGGESTED] * 1000)


def hybrid_of(model: Model | None, share: float = 1.0) -> HybridProposer:
    return HybridProposer(SamplerProposer(RAILS), model and model.choose, RAILS, share=share)


def credited(**credits: Sequence[float]) -> Evidence:
    """Return evidence in which the arms' turns had these credits."""
    evidence = fresh_memory().evidence
    for arm, amounts in credits.items():
        credit = Credit()
        for amount in amounts:
            credit = credit.after(amount)
        evidence.credits = {**evidence.credits, arm: credit}
    return evidence


def turns(evidence: Evidence, share: float = 0.5, number: int = 400) -> tuple[float, float]:
    """Return the shares of iterations in which the model may pick, and propose by itself."""
    hybrid = hybrid_of(Model(), share)
    arms = [hybrid.arms(replace(at(n), evidence=evidence)) for n in range(1, number + 1)]
    return sum("pick" in one for one in arms) / number, sum("own" in one for one in arms) / number


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_first_turn_is_the_models_with_the_chosen_chance(share: float) -> None:
    picks, own = turns(credited(), share)
    assert picks == pytest.approx(share, abs=0.08)
    assert own < picks, "own changes only where it may pick"


@pytest.mark.parametrize(
    ("pick", "own", "picks", "owns"),
    [
        (-1.0, None, (0, 0.12), (0, 0.12)),
        (0.5, None, (0.75, 1), (0, 1)),
        (0.5, -1.0, (0.75, 1), (0, 0.12)),
    ],
    ids=["harmful", "half good", "half good, with bad changes of its own"],
)
def test_eight_turns_take_a_harmful_arms_share_and_leave_a_half_good_ones(
    pick: float, own: float | None, picks: tuple[float, float], owns: tuple[float, float]
) -> None:
    """The credits are those of the benchmark: chance scores 0 with a standard deviation of 1, the
    worst of four one less, and the best in half of the turns half of one more."""
    evidence = credited(search=8 * [0.0], pick=8 * [pick], own=[] if own is None else 8 * [own])
    for share, (low, high) in zip(turns(evidence), (picks, owns), strict=True):
        assert low <= share <= high


def test_turns_follow_from_the_rows_alone() -> None:
    """A new hybrid proposer makes the same choice as one that ran all night."""
    view = replace(memory_of(20), iter=21)
    old = hybrid_of(Model(), 0.5)
    chosen = [old.arms(replace(view, iter=n)) for n in range(21, 60)]
    assert len(set(chosen)) > 1
    again = replace(view, evidence=view.evidence.snapshot())
    assert [hybrid_of(Model(), 0.5).arms(replace(again, iter=n)) for n in range(21, 60)] == chosen


@pytest.mark.parametrize(("share", "asked"), [(0.0, 0), (1.0, 5)])
def test_shares_of_nothing_and_everything(share: float, asked: int) -> None:
    model = Model()
    hybrid = hybrid_of(model, share)
    for iteration in range(1, 6):
        offer = hybrid.propose(at(iteration))
        assert (offer.record.kind == "llm") == bool(share)
    assert len(model.asked) == asked


def test_a_slate_holds_the_samplers_own_proposal_and_other_allowed_ones() -> None:
    view, model = memory_of(30), Model()
    hybrid_of(model).propose(view)
    ((_, slate, arms),) = model.asked
    assert arms == ("pick", "own")
    assert slate.offers[0].reply == SamplerProposer(RAILS).propose(view).reply
    configs = {RAILS.check(one.reply, view.reference, view.tried).config for one in slate.offers}
    assert len(configs - {None}) == SIZE
    assert all(one.sd > 0 for one in slate.candidates)
    predicted = slate.prediction(slate.candidates[1].changes)
    assert predicted.delta == pytest.approx(slate.candidates[1].delta)
    assert predicted.slate_delta == pytest.approx(fmean(one.delta for one in slate.candidates))
    assert predicted.slate_sd > min(one.sd for one in slate.candidates)
    searched = replace(view, iter=1, evidence=credited(search=50 * [1.0], pick=50 * [-1.0]))
    record = hybrid_of(Model(), 0.5).propose(searched).record
    assert (record.kind, record.prediction is None) == ("sampler", False)


def test_a_failing_model_leaves_the_samplers_own_offer_and_is_asked_again() -> None:
    attempts = (Attempt(raw="prose", latency_s=2.5),)
    model = Model(ProposerError("it rambles", attempts, model="tiny", prompt_sha256="abc"))
    hybrid = hybrid_of(model)
    record = hybrid.propose(at(1)).record
    assert (record.kind, record.fallback, record.attempts) == ("sampler", "it rambles", attempts)
    assert (record.model, record.prompt_sha256) == ("tiny", "abc")
    assert record.latency_s >= 2.5
    assert record.overrode is None
    hybrid.propose(at(2))
    assert [iteration for iteration, _, _ in model.asked] == [1, 2]


def test_a_bug_in_a_proposer_costs_its_turn_alone() -> None:
    bug = UnicodeEncodeError("ascii", "\u201csk", 0, 1, "ordinal not in range")
    for proposer in (
        hybrid_of(Model(bug)),
        FallbackProposer(Model(bug), sampler()),
    ):
        record = proposer.propose(at(1)).record
        assert record.kind in {"sampler", "scripted"}
        assert "UnicodeEncodeError" in (record.fallback or "")


@pytest.mark.parametrize("error", [MachineryError("the disk is full"), KeyboardInterrupt()])
def test_a_full_disk_and_a_stop_end_the_turn(error: BaseException) -> None:
    with pytest.raises(type(error)):
        hybrid_of(Model(error)).propose(at(1))


@pytest.mark.parametrize("kind", ["sampler", "hybrid"])
def test_chance_takes_the_turn_of_a_sampler_that_fails(kind: str, tmp_path: Path) -> None:
    unusable = PriorConfig({"a knob of no menu": 1e-3}, 0.0)
    prior = Prior("x", "0" * 64, 20, (unusable,) * 20, (), 0, None)
    view, model = replace(at(1), priors=(prior,)), Model()
    with pytest.raises(KeyError):
        SamplerProposer(RAILS).propose(view)
    settings = new_settings(MENU, "cpu-tiny", {"proposer": kind})
    chosen = choose_proposer(settings, Environment(), RAILS, directory=tmp_path, priors=1)
    hybrid = HybridProposer(RandomProposer(RAILS), model.choose, RAILS, share=1)
    for record in (chosen.proposer.propose(view).record, hybrid.propose(view).record):
        assert record.kind == "random"
        assert "KeyError" in (record.fallback or "")
    assert not model.asked, "there is no slate without a surrogate"
