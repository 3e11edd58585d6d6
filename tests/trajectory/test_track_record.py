"""Outcomes of each proposer's iterations."""

from typing import Literal

import pytest

from tests.support.configs import config
from tests.support.rows import iteration_row, ok, trial
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, Prediction, ProposerRecord, Verdict
from trajectory.rows import Decision, IterationRow
from trajectory.track_record import (
    MOST,
    SEARCH,
    UNUSABLE,
    UNUSABLE_CREDIT,
    Credit,
    TrackRecord,
    credited,
)

CHANGES = {"lr": 0.002}
TRIED = Verdict(allowed=False, rail="novelty", why="the config was already tried")
SILENT = Attempt(raw="", error="the reply is empty")


def row(record: ProposerRecord, action: Literal["keep", "discard"] = "discard") -> IterationRow:
    return iteration_row(
        1, config(lr=0.002), changes=CHANGES, decision=Decision(action=action), proposer=record
    )


def after(*rows: IterationRow) -> dict[str, TrackRecord]:
    return Evidence(rows).track_records


def test_turns_and_keeps_are_whose_the_proposal_was() -> None:
    sampler, model = ProposerRecord(kind="sampler"), ProposerRecord(kind="llm")
    records = after(row(sampler), row(model, "keep"), row(sampler), row(sampler, "keep"))
    assert sorted(records) == ["llm", "sampler"]
    assert (records["llm"].assigned, records["llm"].kept) == (1, 1)
    assert (records["sampler"].assigned, records["sampler"].kept) == (3, 1)


def test_a_keep_of_a_stand_in_is_no_merit_of_the_model_that_failed() -> None:
    attempts = (Attempt(raw="{}", verdict=TRIED), SILENT)
    stood_in = ProposerRecord(kind="sampler", fallback="it repeats itself", attempts=attempts)
    records = after(row(stood_in, "keep"))
    model, sampler = records["llm"], records["sampler"]
    assert (model.assigned, model.kept, model.stood_in) == (1, 0, 1)
    assert (sampler.assigned, sampler.kept, sampler.replies) == (1, 1, 0)
    assert model.refused == {UNUSABLE: 1, "novelty": 1}
    assert str(model) == "0 of 1 iteration kept, 2 of 2 replies of no use"


def test_a_failed_sampler_is_charged_its_turn_and_the_model_is_not() -> None:
    records = after(row(ProposerRecord(kind="random", fallback="LinAlgError"), "keep"))
    assert (records["sampler"].assigned, records["sampler"].stood_in) == (1, 1)
    assert records["random"].kept == 1
    assert "llm" not in records


def test_repeating_what_it_was_shown_earns_a_model_nothing() -> None:
    echo = ProposerRecord(kind="llm", overrode=CHANGES)
    own = ProposerRecord(kind="llm", overrode={"lr": 0.003})
    model = after(row(echo, "keep"), row(own, "keep"))["llm"]
    assert (model.assigned, model.kept, model.echoes) == (2, 1, 1)


def result(record: ProposerRecord, delta: float | None, stderr: float | None = 0.0) -> IterationRow:
    """Return the row of an iteration that measured this difference, or failed."""
    one = config(lr=0.002)
    decision = Decision(action="discard", delta=delta, stderr=stderr)
    return iteration_row(1, one, (trial(1, one, 0, ok(3.0)),), decision=decision, proposer=record)


PREDICTION = Prediction(delta=-0.02, sd=0.01, slate_delta=0.04, slate_sd=0.03)


@pytest.mark.parametrize(
    ("delta", "stderr", "credit"),
    [
        (0.04, 0.0, 0.0),
        (0.01, 0.0, 1.0),
        (0.01, 0.04, 0.6),
        (9.0, 0.0, -MOST),
        (-9.0, 0.0, MOST),
        (None, None, -MOST),
    ],
)
def test_a_turn_has_its_credit(delta: float | None, stderr: float | None, credit: float) -> None:
    record = ProposerRecord(kind="llm", arm="pick", prediction=PREDICTION)
    credits = credited({}, result(record, delta, stderr))
    assert list(credits) == ["pick"]
    assert (credits["pick"].iterations, credits["pick"].weight) == (1, 1)
    assert credits["pick"].total == pytest.approx(credit)


def test_the_search_and_both_arms_of_a_model_have_credits_of_their_own() -> None:
    search = ProposerRecord(kind="sampler", prediction=PREDICTION)
    own = ProposerRecord(kind="llm", arm="own", prediction=PREDICTION)
    bad = Attempt(raw="{}", verdict=TRIED)
    failed = search.model_copy(update={"fallback": "it repeats itself", "attempts": (bad,)})
    silent = search.model_copy(update={"fallback": "silence", "attempts": (SILENT,)})
    before_slates = ProposerRecord(kind="llm", overrode={"lr": 0.003})
    credits: dict[str, Credit] = {}
    for record in (search, own, failed, silent, before_slates):
        credits = credited(credits, result(record, 0.01))
    assert {arm: credit.iterations for arm, credit in credits.items()} == {
        "own": 1,
        "pick": 1,
        SEARCH: 3,
    }
    assert credits["pick"].total == UNUSABLE_CREDIT


def test_ideas_are_remembered_with_their_reason_and_model() -> None:
    record = ProposerRecord(kind="llm", model="tiny", arm="pick", ideas=({"lr": 0.004},))
    (idea,) = Evidence([result(record, 0.01)]).ideas
    assert (idea.changes, idea.model) == ({"lr": 0.004}, "tiny")
    assert idea.reason


def test_old_turns_fade_and_the_interval_narrows() -> None:
    credit = Credit()
    spreads = [credit.posterior()[1]]
    for number in range(100):
        credit = credit.after(-1.0 if number < 50 else 1.0)
        spreads.append(credit.posterior()[1])
    assert spreads == sorted(spreads, reverse=True)
    assert 0.7 < credit.posterior()[0] < 1
    mean, sd = credit.advantage(Credit())
    assert mean == credit.posterior()[0]
    assert sd > credit.posterior()[1]
