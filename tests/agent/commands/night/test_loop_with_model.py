import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.support.openai_server import Handler, OpenAIServer, hangs, says
from tests.support.places import ROOT
from tests.support.processes import alive
from tests.support.simulated.commands import SimulatedToy
from tests.support.waiting import wait_until


@pytest.fixture
def toy(tmp_path: Path) -> SimulatedToy:
    return SimulatedToy(tmp_path)


def point_at(toy: SimulatedToy, url: str) -> None:
    toy.environment |= {"AUTORESEARCH_LLM_BASE_URL": url, "AUTORESEARCH_LLM_MODEL": "tiny"}


@pytest.mark.slow
def test_the_model_picks_from_slates_from_the_first_iteration(toy: SimulatedToy) -> None:
    pick = json.dumps({"reason": "B moves less", "pick": "B", "expected_delta": -20})
    own = json.dumps({"changes": {"lr": 0.004}, "reason": "a higher rate learns faster"})
    program = toy.home / "program.md"
    program.write_text("Only ever touch the learning rate.")
    with OpenAIServer([says(pick), says("B"), says(pick), says(own)]) as server:
        point_at(toy, server.url)
        options = ("--llm-share=1", "--set=max_changes=3", f"--program={program}", "--json")
        done = toy.loop(3, *options)
    assert done.returncode == 0, done.stderr
    rows = toy.iterations()
    assert len(server.chats) == 4
    assert program.read_text() in json.dumps(server.chats[0]["messages"])
    assert [row["proposer"]["kind"] for row in rows] == ["llm"] * 3
    assert [row["proposer"]["arm"] for row in rows] == ["pick", "pick", "own"]
    assert [row["proposer"].get("expected") for row in rows] == [-0.02, -0.02, None]
    for row in rows[:2]:
        assert row["proposal"]["changes"] != row["proposer"]["overrode"]
    assert all(row["proposer"]["prediction"]["slate_sd"] > 0 for row in rows)
    kept = sum(row["decision"]["action"] == "keep" for row in rows)
    record = json.loads(done.stdout)["proposers"]["llm"]
    assert (record["kept"], record["assigned"]) == (kept, 3)
    assert (record["replies"], record["refused"]) == (4, {"schema": 1})


@pytest.mark.slow
def test_an_endpoint_that_is_none_or_dead_or_hangs_costs_no_iteration(toy: SimulatedToy) -> None:
    refused = toy.loop(1, "--proposer=llm")
    assert refused.returncode == 1
    assert "AUTORESEARCH_LLM_BASE_URL" in refused.stderr
    assert not toy.campaign.exists(), "nothing is left half-made"
    done = toy.loop(1)
    assert done.stdout.count("AUTORESEARCH_LLM_BASE_URL is not set") == 1

    point_at(toy, "http://127.0.0.1:9/v1")
    toy.environment["AUTORESEARCH_LLM_DEADLINE_S"] = "0.3"
    done = toy.loop(3, "--llm-share=1")
    assert done.returncode == 0, done.stderr
    for row in toy.iterations()[1:]:
        assert row["proposer"]["kind"] == "sampler"
        assert "127.0.0.1:9" in row["proposer"]["fallback"]
        assert row["trials"]

    # A signal while no trial runs stops at once.
    def stopped(handler: Handler) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        hangs(60)(handler)

    del toy.environment["AUTORESEARCH_LLM_DEADLINE_S"]  # the signal comes before any deadline
    with OpenAIServer([stopped]) as server:
        point_at(toy, server.url)
        done = toy.loop(4, "--proposer=llm")
    assert done.returncode == 130, done.stderr
    assert len(toy.iterations()) == 3


def as_proposer(folder: Path, *words: str) -> str:
    program = ROOT / "tests" / "support" / "agent_program.py"
    return f"--proposer-command={shlex.join([sys.executable, str(program), str(folder), *words])}"


@pytest.mark.slow
def test_a_command_proposes_as_an_endpoint_does_until_its_limit(toy: SimulatedToy) -> None:
    pick = json.dumps({"reason": "B moves less", "pick": "B", "expected_delta": -20})
    words = (as_proposer(toy.home, "claude", pick), "--llm-share=1", "--proposer-usd=0.5")
    done = toy.loop(2, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proposers"]["llm"]["usd"] == 0.5
    done = toy.loop(3, *words)  # resumed: the limit counts both sessions
    assert done.returncode == 0, done.stderr
    proposers = [row["proposer"] for row in toy.iterations()]
    assert [each["kind"] for each in proposers] == ["llm", "llm", "sampler"]
    for each in proposers[:2]:
        assert each["arm"] == "pick"
        assert (each["attempts"][0]["mode"], each["attempts"][0]["cost_usd"]) == ("command", 0.25)
        assert each["prediction"]["slate_sd"] > 0, "it earns credit as an endpoint's pick does"
    assert "--proposer-usd" in proposers[2]["fallback"]
    assert proposers[2]["attempts"] == []
    assert len(list(toy.home.glob("asked-*.json"))) == 2


@pytest.mark.slow
def test_a_command_that_fails_costs_no_iteration_and_a_signal_ends_it(toy: SimulatedToy) -> None:
    done = toy.loop(1, as_proposer(toy.home, "fails"), "--proposer=llm")
    assert done.returncode == 0, done.stderr
    done = toy.loop(2, "--proposer-command=no-such-program", "--proposer=llm")
    assert done.returncode == 0, done.stderr
    for row, why in zip(toy.iterations(), ("please log in", "no-such-program"), strict=True):
        assert row["proposer"]["kind"] == "sampler"
        assert why in row["proposer"]["fallback"]
        assert row["trials"]
    refused = toy.loop(3, "--proposer-command=claude 'p")
    assert refused.returncode == 1
    # A signal while no trial runs stops at once.
    done = toy.loop(3, as_proposer(toy.home, "stops", str(os.getpid())), "--proposer=llm")
    assert done.returncode == 130, done.stderr
    assert len(toy.iterations()) == 2
    child = int((toy.home / "child").read_text())
    wait_until(lambda: not alive(child))
