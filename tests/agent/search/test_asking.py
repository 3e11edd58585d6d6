import asyncio
import gc
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.menu.rails import Rails
from agent.menu.replies import ParsedReply
from agent.proposers.base import Offer, ProposerError, SearchView
from agent.proposers.draws import RandomProposer
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.search.loop import in_thread
from agent.search.stopping import Goal
from tests.support.memories import MENU, fresh_memory
from tests.support.nights import work, written
from tests.support.openai_server import Handler, OpenAIServer, says
from tests.support.waiting import wait_until
from trainer.schema import Budget
from trajectory.proposals import ProposerRecord

RAILS = Rails(MENU, budget=Budget())


class Slow:
    """A proposer that answers when the test allows it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may = threading.Event()
        self._error = error

    def propose(self, view: SearchView) -> Offer:
        assert self.may.wait()
        if self._error is not None:
            raise self._error
        return Offer(ParsedReply({"lr": 0.004}, "r"), ProposerRecord(kind="slow"))


@pytest.mark.parametrize("error", [None, ProposerError("exhausted"), ValueError("a bug")])
def test_an_answer_or_error_of_a_thread_is_awaited(error: Exception | None) -> None:
    slow = Slow(error)

    async def asked() -> Offer:
        asking = asyncio.create_task(in_thread(lambda: slow.propose(fresh_memory())))
        done, _ = await asyncio.wait([asking], timeout=0.01)
        assert not done, "the event loop goes on"
        slow.may.set()
        return await asking

    if error is None:
        assert asyncio.run(asked()).reply.reason == "r"
    else:
        with pytest.raises(type(error), match=str(error)):
            asyncio.run(asked())


def test_nobody_waits_for_a_thread_at_the_end() -> None:
    slow = Slow()

    async def leave() -> None:
        asking = asyncio.create_task(in_thread(lambda: slow.propose(fresh_memory())))
        await asyncio.wait([asking], timeout=0.01)

    asyncio.run(leave())
    slow.may.set()
    (thread,) = (one for one in threading.enumerate() if one.name == "proposer")
    thread.join()


class InFlight(RandomProposer):
    """Propose what is in flight, where something is."""

    def propose(self, view: SearchView) -> Offer:
        offer = super().propose(view)
        if not view.pending:
            return offer
        now = MENU.knob_values(view.reference)
        flying = MENU.knob_values(view.pending[0])
        changes = {name: value for name, value in flying.items() if value != now[name]}
        return replace(offer, reply=ParsedReply(changes, "again"))


def test_what_is_in_flight_is_refused_though_the_proposer_did_not_look(tmp_path: Path) -> None:
    work(tmp_path, Goal(iterations=3), lanes=2, proposer=InFlight)
    rails = [row["verdict"]["rail"] for row in written(tmp_path) if row["kind"] == "iteration"]
    assert "novelty" in rails


class FailsAhead(RandomProposer):
    """Fail at the second question, which is asked while the first proposal is raced."""

    asked: ClassVar[threading.Event] = threading.Event()

    def propose(self, view: SearchView) -> Offer:
        if view.iter > 1:
            self.asked.set()
            raise ProposerError("exhausted")
        return super().propose(view)


def test_an_error_that_comes_too_late_is_no_news(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def reached(trial: str, _stop: object) -> None:
        if trial == "t000006":
            assert FailsAhead.asked.wait()

    said = work(tmp_path, Goal(trials=6), proposer=FailsAhead, at_trial=reached, asks_early=True)
    gc.collect()
    assert "the goal of 6 trials is reached" in said
    assert not caplog.records


def test_on_one_lane_a_model_thinks_while_a_trial_runs(tmp_path: Path) -> None:
    def iterations() -> list[dict[str, Any]]:
        return [row for row in written(tmp_path) if row["kind"] == "iteration"]

    def answer_late(handler: Handler) -> None:
        wait_until(iterations)
        says(json.dumps({"changes": {"lr": 0.003}, "reason": "r"}))(handler)

    first = says(json.dumps({"changes": {"lr": 0.002}, "reason": "r"}))
    with OpenAIServer([first, answer_late]) as server:

        def trial_ended(_trial: str, _stop: object) -> None:
            wait_until(lambda: len(server.chats) != 1)

        def model(rails: Rails) -> LlmProposer:
            return LlmProposer(Endpoint(server.url, "tiny"), rails, Prompter(rails.budget))

        work(tmp_path, Goal(iterations=2), proposer=model, at_trial=trial_ended, asks_early=True)
        asked = [json.dumps(body["messages"]) for body in server.chats]
    rows = iterations()
    assert [row["proposal"]["changes"]["lr"] for row in rows] == [0.002, 0.003]
    assert "In training now" not in asked[0]
    assert "In training now" in asked[1]
