"""Run a campaign with a language model behind a real endpoint, through the command."""

import json

import pytest

from tests.support.campaigns import Toy
from tests.support.openai_server import OpenAIServer, says

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
