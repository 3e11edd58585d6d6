import json
from dataclasses import replace

import pytest

from agent.menu.replies import ParsedReply, read_reply
from agent.proposers.base import ProposerError, SearchView
from agent.proposers.hybrid import Slate
from agent.proposers.llm.prompt import REFUSED_REPLY, Prompter
from agent.proposers.llm.proposer import KEPT_CHARACTERS
from agent.proposers.llm.reply_form import proposal_schema, slate_schema
from agent.proposers.llm.tokens import estimate_tokens
from agent.proposers.sampler import SamplerProposer
from tests.support.endpoints import model_at
from tests.support.memories import RAILS, fresh_memory, memory_of, raw, remember
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    refuses,
    says,
    schema_of,
    sends,
    sends_json,
)
from trainer.schema import Budget
from trajectory.proposals import Arm, Attempt, ProposerRecord, Verdict

GOOD = raw({"lr": 0.004}, "a higher rate")


def test_the_request_is_the_prompt_and_an_allowed_reply_is_offered_with_its_record() -> None:
    fenced, view = f"```json\n{GOOD}\n```", memory_of(20)
    with OpenAIServer([says(fenced)]) as server:
        offer = model_at(server).propose(view)
    prompt = Prompter(Budget()).prompt(view)
    (body,) = server.chats
    assert [turn["content"] for turn in body["messages"]] == [m.content for m in prompt.messages]
    assert schema_of(body) == proposal_schema(view)
    record = offer.record
    (attempt,) = record.attempts
    assert offer.reply == read_reply(GOOD)
    assert attempt.raw == fenced
    assert record.latency_s >= attempt.latency_s > 0
    assert record == ProposerRecord(
        kind="llm",
        model="tiny",
        prompt_sha256=prompt.sha256,
        latency_s=record.latency_s,
        attempts=(
            Attempt(
                raw=fenced,
                mode="json_schema",
                finish_reason="stop",
                verdict=Verdict(allowed=True),
                latency_s=attempt.latency_s,
                prompt_tokens=101,
                completion_tokens=7,
            ),
        ),
    )


@pytest.mark.parametrize(("limit", "asked"), [(None, 8), (2, 2), (5, 5)])
def test_a_model_is_asked_for_eight_knobs_or_a_chosen_limit(limit: int | None, asked: int) -> None:
    """Without a chosen limit, a campaign allows all knobs, but the model is asked for eight."""
    count = len(RAILS.menu.knobs)
    view = replace(memory_of(20), max_changes=limit or count)
    with OpenAIServer([says(GOOD)]) as server:
        model_at(server).propose(view)
    (body,) = server.chats
    changes = schema_of(body)["properties"]["changes"]
    assert changes["maxItems"] == asked
    assert f"between 1 and {asked} knobs" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("bad", "rail"),
    [
        ("I would raise the learning rate.", "schema"),
        ('{"changes": {"lr": 0.0', "schema"),
        (raw({"learning_rate": 0.1}), "menu"),
        (raw({"lr": 99}), "range"),
        (raw({"lr": 0.001}), "novelty"),
    ],
)
def test_a_refused_reply_is_repaired_by_the_verdict_and_more_warmth(bad: str, rail: str) -> None:
    with OpenAIServer([says(bad), says(GOOD)]) as server:
        offer = model_at(server).propose(fresh_memory())
    refused, allowed = offer.record.attempts
    assert refused.raw == bad
    assert refused.verdict is not None
    assert refused.verdict.rail == rail
    assert allowed.verdict is not None
    assert allowed.verdict.allowed
    first, second = server.chats
    *before, shown, asked = second["messages"]
    assert before == first["messages"]
    assert shown == {"role": "assistant", "content": REFUSED_REPLY}, "models repeat themselves"
    assert second["temperature"] > first["temperature"]
    assert refused.verdict.why in asked["content"]


@pytest.mark.parametrize("turn", [says(""), sends(b"not json")])
def test_an_unusable_reply_costs_an_attempt_and_no_verdict(turn: Turn) -> None:
    with OpenAIServer([says(GOOD), turn, says(GOOD)]) as server:
        llm = model_at(server)
        llm.propose(fresh_memory())
        offer = llm.propose(fresh_memory())
    unusable, allowed = offer.record.attempts
    assert unusable.verdict is None
    assert unusable.error
    assert allowed.error is None
    assert unusable.error in server.chats[-1]["messages"][-1]["content"]


def test_three_refusals_end_the_turn_with_every_attempt_kept() -> None:
    with OpenAIServer([says(raw({"lr": 99}))]) as server:
        with pytest.raises(ProposerError) as raised:
            model_at(server).propose(fresh_memory())
        assert len(server.chats) == 3
    rails = [attempt.verdict and attempt.verdict.rail for attempt in raised.value.attempts]
    assert rails == ["range", "range", "range"]
    assert raised.value.model == "tiny"
    assert raised.value.prompt_sha256 == Prompter(Budget()).prompt(fresh_memory()).sha256


def test_a_dead_endpoint_ends_the_turn_with_what_was_said_before() -> None:
    with (
        OpenAIServer([says("prose"), refuses(401)]) as server,
        pytest.raises(ProposerError, match="HTTP 401") as raised,
    ):
        model_at(server).propose(fresh_memory())
    said, nothing = raised.value.attempts
    assert said.raw == "prose"
    assert (nothing.raw, nothing.verdict) == ("", None)
    assert nothing.error is not None
    assert "HTTP 401" in nothing.error


def test_a_long_reply_is_kept_cut_and_shown_short() -> None:
    with OpenAIServer([says("x" * 50_000), says(GOOD)]) as server:
        offer = model_at(server).propose(fresh_memory())
    long = offer.record.attempts[0]
    assert (len(long.raw), long.truncated) == (KEPT_CHARACTERS, True)
    assert not offer.record.attempts[1].truncated
    assert len(server.chats[1]["messages"][-2]["content"]) < 1000


def slate_of(view: SearchView) -> Slate:
    return Slate.drawn(SamplerProposer(RAILS), RAILS, view)


def choice(pick: str, **more: object) -> str:
    said = {"reason": "#12 measured -31", "pick": pick, "expected_delta": -20, **more}
    return json.dumps(said)


def test_a_pick_is_the_candidates_own_proposal_with_the_models_reason() -> None:
    view = memory_of(20)
    slate = slate_of(view)
    with OpenAIServer([says(choice("C"))]) as server:
        offer = model_at(server).choose(view, slate, ("pick",))
    (body,) = server.chats
    assert schema_of(body) == slate_schema(view, "ABCD", ("pick",))
    assert offer.reply == ParsedReply(dict(slate.candidates[2].changes), "#12 measured -31")
    record = offer.record
    assert (record.kind, record.arm, record.expected) == ("llm", "pick", -0.02)
    assert record.overrode == slate.candidates[0].changes
    assert record.prediction == slate.prediction(slate.candidates[2].changes)
    assert record.attempts[0].raw == choice("C")


RATE = [{"knob": "lr", "value": 0.00413}]


@pytest.mark.parametrize(
    ("reply", "arms", "record", "rails"),
    [
        (choice("own", changes=RATE), ("pick", "own"), ("own", -0.02), [None]),
        (json.dumps({"reason": "r", "changes": RATE}), ("pick", "own"), ("own", None), [None]),
        (choice("own", changes=RATE), ("pick",), ("pick", -0.02), ["schema", None]),
        (choice("Z"), ("pick", "own"), ("pick", -0.02), ["schema", None]),
        (choice("AB"), ("pick", "own"), ("pick", -0.02), ["schema", None]),
        ('{"pick": 1, "reason": ""}', ("pick", "own"), ("pick", -0.02), ["schema", None]),
        ("C", ("pick", "own"), ("pick", -0.02), ["schema", None]),
    ],
)
def test_a_reply_to_a_slate_names_a_candidate_or_own_changes_where_they_are_allowed(
    reply: str, arms: tuple[Arm, ...], record: tuple[str, float | None], rails: list[str | None]
) -> None:
    view = memory_of(20)
    with OpenAIServer([says(reply), says(f"I choose {choice('B')}")]) as server:
        offer = model_at(server).choose(view, slate_of(view), arms)
    assert (offer.record.arm, offer.record.expected) == record
    assert [one.verdict and one.verdict.rail for one in offer.record.attempts] == rails
    if record[0] == "own":
        assert offer.reply.changes == {"lr": 0.00413}


@pytest.mark.parametrize(
    "said",
    ["Candidate B", "candidate_B", "b", "(B)", "**B**", "B: the higher rate", "Option b", ["B"]],
)
def test_a_pick_in_other_words_is_understood(said: object) -> None:
    view = memory_of(20)
    slate = slate_of(view)
    with OpenAIServer([says(json.dumps({"Pick": said, "reason": "r", "changes": None}))]) as server:
        offer = model_at(server).choose(view, slate, ("pick", "own"))
        assert len(server.chats) == 1
    assert offer.reply.changes == slate.candidates[1].changes


@pytest.mark.parametrize("said", ["A or B", "ABC", "a b", "the best", {"candidate": "B"}])
def test_a_pick_of_two_or_none_is_refused(said: object) -> None:
    view = memory_of(20)
    turns = [says(json.dumps({"pick": said, "reason": "r"})), says(choice("B"))]
    with OpenAIServer(turns) as server:
        model_at(server).choose(view, slate_of(view), ("pick",))
        assert len(server.chats) == 2


def test_own_changes_that_repeat_a_candidate_are_a_pick_of_it() -> None:
    view = memory_of(20)
    slate = slate_of(view)
    said = choice("own", changes=slate.candidates[1].changes)
    with OpenAIServer([says(said)]) as server:
        record = model_at(server).choose(view, slate, ("pick", "own")).record
    assert record.arm == "pick"


def test_further_ideas_are_kept_if_the_rails_allow_them_and_refuse_no_reply() -> None:
    view = memory_of(20)
    ideas = [RATE, [{"knob": "lr", "value": 99}], "more data", [{"knob": "colour", "value": 1}]]
    said = says(choice("B", ideas=[*ideas, [{"knob": "lr", "value": 0.00414}]]))
    with OpenAIServer([said]) as server:
        record = model_at(server).choose(view, slate_of(view), ("pick", "own")).record
        unasked = model_at(server).choose(view, slate_of(view), ("pick",)).record
    assert record.arm == unasked.arm == "pick"
    assert record.ideas == ({"lr": 0.00413},), "the fifth is one too many"
    assert unasked.ideas == ()


def test_a_config_already_tried_is_refused_with_the_values_that_are_used_up() -> None:
    view = remember(fresh_memory(), {"lr": 0.004}, 3.8)
    with OpenAIServer([says(GOOD), says(raw({"lr": 0.005}))]) as server:
        offer = model_at(server).propose(view)
    assert offer.record.attempts[0].verdict is not None
    assert offer.record.attempts[0].verdict.rail == "novelty"
    assert offer.reply.changes == {"lr": 0.005}
    assert "1 value of lr alone" in server.chats[1]["messages"][-1]["content"]


def too_long(context: int) -> Turn:
    """Return a refusal in the form of llama.cpp's server."""
    return sends_json(
        {"error": {"code": 400, "message": "request exceeds the context", "n_ctx": context}}, 400
    )


def test_a_prompt_is_no_longer_than_the_server_says_it_takes() -> None:
    view = memory_of(60)
    tells = {"meta": {"n_ctx": 2048, "n_ctx_train": 8192}}
    with OpenAIServer([says(raw({"lr": 99})), says(GOOD)], tells=tells) as server:
        assert model_at(server).propose(view).reply == read_reply(GOOD)
    first, repair = server.chats
    prompt = Prompter(Budget()).prompt(view, context=2048)
    assert [turn["content"] for turn in first["messages"]] == [m.content for m in prompt.messages]
    for chat in (first, repair):
        whole = "".join(turn["content"] for turn in chat["messages"])
        assert 256 <= chat["max_tokens"] <= 2048 - estimate_tokens(whole)


def test_a_server_that_says_its_length_by_refusing_is_asked_again_at_that_length() -> None:
    view = memory_of(60)
    with OpenAIServer([too_long(2048), says(GOOD), says(GOOD)]) as server:
        llm = model_at(server)
        offer = llm.propose(view)
        llm.propose(view)
    assert len(offer.record.attempts) == 1
    long, short, next_turn = (chat["messages"] for chat in server.chats)
    assert sum(len(turn["content"]) for turn in short) < sum(len(t["content"]) for t in long)
    assert short == next_turn, "from then on it is known"
    assert offer.record.prompt_sha256 == Prompter(Budget()).prompt(view, context=2048).sha256


def test_a_server_that_refuses_even_that_ends_the_turn() -> None:
    with OpenAIServer([too_long(2048)]) as server:
        with pytest.raises(ProposerError, match="HTTP 400") as raised:
            model_at(server).propose(memory_of(60))
        assert len(server.chats) == 2
    (attempt,) = raised.value.attempts
    assert attempt.error is not None


def test_a_server_that_refuses_a_repair_for_its_length_ends_the_turn_with_every_attempt() -> None:
    with OpenAIServer([says(raw({"lr": 99})), too_long(2048), says(GOOD)]) as server:
        with pytest.raises(ProposerError, match="HTTP 400") as raised:
            model_at(server).propose(memory_of(60))
        assert len(server.chats) == 2
    assert [attempt.error is None for attempt in raised.value.attempts] == [True, False]
