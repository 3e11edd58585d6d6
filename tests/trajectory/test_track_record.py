"""Outcomes of each proposer's iterations."""

from __future__ import annotations

from typing import Literal

from tests.support.configs import config
from tests.support.rows import Simulator, iteration_row, ok, trial
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.rows import Decision, IterationRow
from trajectory.track_record import REMEMBERED, UNUSABLE, TrackRecord, recorded

CHANGES = {"lr": 0.002}
TRIED = Verdict(allowed=False, rail="novelty", why="the config was already tried")
SILENT = Attempt(raw="", error="the reply is empty")


def row(record: ProposerRecord, action: Literal["keep", "discard"] = "discard") -> IterationRow:
    return iteration_row(
        1, config(lr=0.002), changes=CHANGES, decision=Decision(action=action), proposer=record
    )


def after(*rows: IterationRow) -> dict[str, TrackRecord]:
    records: dict[str, TrackRecord] = {}
    for each in rows:
        records = recorded(records, each)
    return records


def test_turns_and_keeps_are_whose_the_proposal_was() -> None:
    sampler, model = ProposerRecord(kind="sampler"), ProposerRecord(kind="llm")
    records = after(row(sampler), row(model, "keep"), row(sampler), row(sampler, "keep"))
    assert list(records) == ["llm", "sampler"]
    assert (records["llm"].turns, records["llm"].kept) == (1, 1)
    assert (records["sampler"].turns, records["sampler"].latest) == (3, "..k")


def test_a_keep_of_a_stand_in_is_no_merit_of_the_model_that_failed() -> None:
    attempts = (Attempt(raw="{}", verdict=TRIED), SILENT)
    stood_in = ProposerRecord(kind="sampler", fallback="it repeats itself", attempts=attempts)
    records = after(row(stood_in, "keep"))
    model, sampler = records["llm"], records["sampler"]
    assert (model.turns, model.kept, model.stood_in) == (1, 0, 1)
    assert (sampler.turns, sampler.kept, sampler.replies) == (1, 1, 0)
    assert model.refused == {UNUSABLE: 1, "novelty": 1}
    assert str(model) == "0 of 1 turn kept, 2 of 2 replies of no use"


def test_a_failed_sampler_is_charged_its_turn_and_the_model_is_not() -> None:
    records = after(row(ProposerRecord(kind="random", fallback="LinAlgError"), "keep"))
    assert (records["sampler"].turns, records["sampler"].stood_in) == (1, 1)
    assert records["random"].kept == 1
    assert "llm" not in records


def test_repeating_what_it_was_shown_earns_a_model_nothing() -> None:
    echo = ProposerRecord(kind="llm", overrode=CHANGES)
    own = ProposerRecord(kind="llm", overrode={"lr": 0.003})
    model = after(row(echo, "keep"), row(own, "keep"))["llm"]
    assert (model.turns, model.kept, model.echoes, model.latest) == (2, 1, 1, ".k")


def test_a_turn_takes_its_replies_and_its_trials_and_each_proposer_is_charged_its_own() -> None:
    one = config(lr=0.002)
    trials = tuple(trial(n, one, n, ok(3.0)).model_copy(update={"wall_s": 10.0}) for n in range(2))
    attempts = (Attempt(raw="{}", verdict=TRIED, latency_s=3.0), SILENT)
    model = ProposerRecord(kind="llm", latency_s=4.0)
    failed = ProposerRecord(kind="sampler", fallback="silence", attempts=attempts, latency_s=3.5)
    rows = [iteration_row(n, one, trials, proposer=who) for n, who in enumerate((model, failed), 1)]
    records = after(*rows)
    assert (records["llm"].took_s, records["llm"].turn_s) == (27.0, 13.5)
    assert (records["sampler"].took_s, records["sampler"].turn_s) == (20.5, 20.5)
    assert TrackRecord().turn_s == 0


def test_the_rate_is_that_of_the_latest_turns() -> None:
    assert TrackRecord().rate(10) == 0
    record = TrackRecord()
    for number in range(100):
        record = record.after(kept=number < 50)
    assert len(record.latest) == REMEMBERED
    assert (record.turns, record.kept) == (100, 50)
    assert (record.rate(10), record.rate(60)) == (0, 10 / 60)


def test_records_restored_midway_are_those_of_the_whole() -> None:
    rows = list(Simulator(3).rows(120))
    before = Evidence(rows[:70])
    restored = Evidence.restore(before.tally, before.configs.values())
    for each in rows[70:]:
        restored.add(each)
    records = restored.tally.track_records
    assert records == Evidence(rows).tally.track_records
    assert sum(record.turns for record in records.values()) == 120
    assert records["llm"].refused["novelty"] == records["llm"].turns
