"""Run campaigns with a language model behind a real endpoint, good and bad, through the command."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support.campaigns import Toy
from tests.support.openai_server import OpenAIServer, hangs, says
from tests.support.waiting import wait_until

KEY = "sk-0123456789"


def point_at(toy: Toy, url: str) -> None:
    toy.environment |= {
        "AUTORESEARCH_LLM_BASE_URL": url,
        "AUTORESEARCH_LLM_MODEL": "tiny",
        "AUTORESEARCH_LLM_API_KEY": KEY,
    }


def proposal(lr: float) -> str:
    return json.dumps({"changes": {"lr": lr}, "reason": "a higher rate learns faster"})


@pytest.mark.slow
def test_the_models_proposals_are_trained_and_recorded(toy: Toy) -> None:
    turns = [
        says(proposal(0.002)),
        says("I would raise the learning rate."),
        says(proposal(0.002)),  # tried already: it repairs the proposal after seeing the verdict
        says(proposal(0.003)),
    ]
    program = toy.home / "program.md"
    program.write_text("Only ever touch the learning rate.")
    with OpenAIServer(turns) as server:
        point_at(toy, server.url)
        done = toy.loop(2, "--proposer=llm", f"--program={program}")
    assert done.returncode == 0, done.stderr
    assert "Only ever touch the learning rate." in json.dumps(server.chats[0]["messages"])
    first, second = toy.iterations()
    assert first["proposer"]["kind"] == second["proposer"]["kind"] == "llm"
    assert first["proposal"]["changes"] == {"lr": 0.002}
    assert second["config"]["lr"] == 0.003
    rails = [attempt["verdict"]["rail"] for attempt in second["proposer"]["attempts"]]
    assert rails == ["schema", "novelty", None]
    assert first["trials"][0]["result"]["status"] == "ok"
    assert KEY not in (toy.campaign / "trajectory.jsonl").read_text()


@pytest.mark.slow
def test_the_model_picks_from_slates_from_the_first_iteration(toy: Toy) -> None:
    pick = json.dumps({"reason": "B moves less", "pick": "B", "expected_delta": -20})
    with OpenAIServer([says(pick), says("B"), says(pick), says(proposal(0.004))]) as server:
        point_at(toy, server.url)
        done = toy.loop(3, "--llm-share=1", "--set=max_changes=3")
        asked = len(server.chats)
    assert done.returncode == 0, done.stderr
    rows = toy.iterations()
    assert asked == 4
    assert [row["proposer"]["kind"] for row in rows] == ["llm"] * 3
    assert [row["proposer"]["arm"] for row in rows] == ["pick", "pick", "own"]
    assert [row["proposer"].get("expected") for row in rows] == [-0.02, -0.02, None]
    for row in rows[:2]:
        assert row["proposal"]["changes"] != row["proposer"]["overrode"]
    assert all(row["proposer"]["prediction"]["slate_sd"] > 0 for row in rows)
    kept = sum(row["decision"]["action"] == "keep" for row in rows)
    assert f"proposers llm {kept} of 3 iterations kept, 1 of 4 replies of no use" in done.stdout
    assert "after 2 turns" in done.stdout


@pytest.mark.slow
def test_an_endpoint_that_is_none_or_dead_or_hangs_costs_no_iteration(toy: Toy) -> None:
    refused = toy.loop(1, "--proposer=llm")
    assert refused.returncode == 1
    assert "AUTORESEARCH_LLM_BASE_URL" in refused.stderr
    assert not toy.campaign.exists(), "nothing is left half-made"
    done = toy.loop(1)
    assert done.stdout.count("AUTORESEARCH_LLM_BASE_URL is not set") == 1

    point_at(toy, "http://127.0.0.1:9/v1")
    toy.environment["AUTORESEARCH_LLM_DEADLINE_S"] = "2"
    done = toy.loop(3, "--llm-share=1")
    assert done.returncode == 0, done.stderr
    for row in toy.iterations()[1:]:
        assert row["proposer"]["kind"] == "sampler"
        assert "127.0.0.1:9" in row["proposer"]["fallback"]
        assert row["trials"]

    # A signal while no trial runs stops at once.
    with OpenAIServer([hangs(60)]) as server:
        point_at(toy, server.url)
        running = toy.start(4, "--proposer=llm")
        wait_until(lambda: bool(server.chats))
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate()
    assert running.returncode == 130, output
    assert len(toy.iterations()) == 3
