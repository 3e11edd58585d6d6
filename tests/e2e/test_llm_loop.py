"""Run a campaign with a language model behind a real endpoint, through the command."""

import json

import pytest

from tests.support.campaigns import Toy
from tests.support.openai_server import OpenAIServer, says

KEY = "sk-0123456789"


@pytest.mark.slow
def test_the_models_proposals_are_trained_and_recorded(toy: Toy) -> None:
    first, second = (
        json.dumps({"changes": {"lr": lr}, "reason": "a higher rate learns faster"})
        for lr in (0.002, 0.003)
    )
    # What was tried already is repaired after the model has seen the verdict.
    turns = map(says, (first, "I would raise the learning rate.", first, second))
    program = toy.home / "program.md"
    program.write_text("Only ever touch the learning rate.")
    with OpenAIServer(turns) as server:
        toy.environment |= {
            "AUTORESEARCH_LLM_BASE_URL": server.url,
            "AUTORESEARCH_LLM_MODEL": "tiny",
            "AUTORESEARCH_LLM_API_KEY": KEY,
        }
        done = toy.loop(2, "--proposer=llm", f"--program={program}")
    assert done.returncode == 0, done.stderr
    assert "Only ever touch the learning rate." in json.dumps(server.chats[0]["messages"])
    rows = toy.iterations()
    assert [row["proposer"]["kind"] for row in rows] == ["llm", "llm"]
    assert rows[0]["proposal"]["changes"] == {"lr": 0.002}
    assert rows[1]["config"]["lr"] == 0.003
    rails = [attempt["verdict"]["rail"] for attempt in rows[1]["proposer"]["attempts"]]
    assert rails == ["schema", "novelty", None]
    assert rows[0]["trials"][0]["result"]["status"] == "ok"
    assert KEY not in (toy.campaign / "trajectory.jsonl").read_text()
