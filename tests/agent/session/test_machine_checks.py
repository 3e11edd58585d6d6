import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.session import machine_checks
from agent.session.cluster_checks import demands, examine_cluster, examine_node
from agent.session.machine_checks import (
    Check,
    disk_state,
    endpoint,
    examine,
    megatron,
    shared_memory,
)
from agent.settings.environment import Environment
from autoresearch.errors import MachineryError
from tests.support.commands import script
from tests.support.megatron_on_cpu import needs_megatron
from tests.support.openai_server import OpenAIServer, Turn, hangs, refuses, says
from tests.support.own_menus import OWN_MENU
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.programs import finished
from tests.support.stub_cuda import HAS_CUDA, build_stub, make_machine
from trainer.executors.ray.facts import Node, find_facts
from trainer.executors.ray.messages import Machine
from trainer.training.cuda_probe import probe_megatron


def test_a_missing_megatron_is_no_fault_and_a_pair_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(device: str) -> str:
        raise MachineryError("unexpected keyword argument")

    def versions(*known: str) -> None:
        monkeypatch.setattr(
            machine_checks, "installed", lambda name: "1" if name in known else None
        )

    versions()
    assert megatron(fails, "cpu").state == "note"
    versions("megatron-core", "transformer-engine")
    assert megatron(str, "cpu").state == "good"
    broken = megatron(fails, "cpu")
    assert broken.state == "note"
    assert "unexpected keyword argument" in broken.found


@pytest.mark.slow
@needs_megatron
@pytest.mark.parametrize(("engine", "works"), [(None, True), ("raise TypeError('no')", False)])
def test_megatron_is_imported_in_a_trials_process(
    engine: str | None, works: bool, tmp_path: Path
) -> None:
    """A module in place of ``megatron.core`` fails as a broken pair does."""
    environ = dict(os.environ)
    if engine is not None:
        (tmp_path / "megatron").mkdir()
        (tmp_path / "megatron" / "core.py").write_text(engine)
        (tmp_path / "megatron" / "__init__.py").write_text("")
        environ["PYTHONPATH"] = f"{tmp_path}:{environ.get('PYTHONPATH', '')}"
    if works:
        assert probe_megatron("cpu", environ=environ)
        return
    with pytest.raises(MachineryError):
        probe_megatron("cpu", environ=environ)


def test_compiling_is_asked_about_where_there_is_a_gpu(tmp_path: Path) -> None:
    names = [check.name for check in examine(Environment(data_dir=tmp_path), tmp_path)]
    assert names[0] == "sandbox"
    assert names.index("device") < names.index("megatron")
    assert ("compiler" in names) == torch.cuda.is_available()


@pytest.mark.parametrize(
    ("total", "available", "free", "reserve_gib", "state", "said"),
    [
        (64, 30, 28, 13.0, "good", ""),
        (64, 60, 58, 8.0, "note", "AUTORESEARCH_MEMORY_RESERVE_GIB to 13"),
        (64, 13, 12, 8.0, "note", "smaller share"),
        (120, 60, 20, 24.0, "note", "drop_caches"),
    ],
)
def test_programs_that_share_the_memory_take_four_fifths_in_all(
    total: int,
    available: int,
    free: int,
    reserve_gib: float,
    state: str,
    said: str,
    tmp_path: Path,
) -> None:
    kib = {"MemTotal": total, "MemFree": free, "MemAvailable": available}
    text = "".join(f"{name}: {gib << 20} kB\n" for name, gib in kib.items())
    (tmp_path / "meminfo").write_text(text)
    (check,) = shared_memory(reserve_gib, tmp_path / "meminfo", is_shared=True)
    assert check.state == state
    assert f"{total} GiB" in check.found
    assert said in check.found
    assert [*shared_memory(reserve_gib, tmp_path / "meminfo", is_shared=False)] == []


def test_a_command_needs_no_corpus(tmp_path: Path) -> None:
    script(tmp_path, "lr = 1.0")
    (tmp_path / "own.toml").write_text(OWN_MENU)
    environment = Environment(data_dir=tmp_path)

    def corpus(menu: str) -> str:
        checks = examine(environment, tmp_path / "runs", menu)
        return next(check.found for check in checks if check.name == "corpus")

    assert corpus(str(tmp_path / "own.toml")).startswith("none needed")
    for menu in ("cpu-tiny", str(tmp_path / "absent.toml")):
        assert "prepared in" in corpus(menu)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to ask")
@pytest.mark.parametrize(("ends", "state"), [("segv", "bad"), ("0", "bad" if HAS_CUDA else "note")])
def test_the_doctor_starts_cuda_in_the_sandbox(ends: str, state: str, tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    environment = machine.environ(ends=ends) | {"AUTORESEARCH_DATA_DIR": str(tmp_path / "data")}
    command = (sys.executable, "-m", "autoresearch", "doctor", "--json")
    done = finished(*command, cwd=tmp_path, env=environment)
    states = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert (states["device"], done.returncode) == (state, 1 if state == "bad" else 0)


PROPOSAL = '{"reason": "faster", "changes": [{"knob": "lr", "value": 0.004}]}'


def asked_of(url: str, **settings: Any) -> Check:
    return endpoint(Environment(llm_base_url=url, **settings))


def test_an_endpoint_is_asked_for_one_completion_in_its_mode() -> None:
    tells = {"meta": {"n_ctx": 4096, "n_ctx_train": 8192}}
    with OpenAIServer([says(PROPOSAL)], rejects=["json_schema"], tells=tells) as server:
        check = asked_of(server.url)
    assert check.state == "good"
    assert all(said in check.found for said in ("tiny", "json_object.schema", "4,096 tokens"))
    chat = server.chats[-1]
    assert chat["response_format"]["schema"]["required"] == ["reason", "changes"]


def test_a_named_model_is_no_proof_that_anybody_is_there() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    assert asked_of(url, llm_model="mine", llm_timeout_s=1).state == "note"


@pytest.mark.parametrize(
    ("turn", "tells", "found"),
    [
        (refuses(400, "no such model"), {}, "no such model"),
        (says("I would raise it."), {}, "not one JSON object"),
        (says('{"reason": "x', finish_reason="length"), {}, "cut off"),
        (hangs(30), {}, "no answer within 1 s"),
        (says(PROPOSAL), {"max_model_len": 1024}, "1024"),
    ],
)
def test_an_endpoint_that_fails_is_noted(turn: Turn, tells: dict[str, Any], found: str) -> None:
    with OpenAIServer([turn], tells=tells) as server:
        check = asked_of(server.url, llm_timeout_s=1)
    assert check.state == "note"
    assert found in check.found
    assert bool(server.chats) == (not tells)


@pytest.mark.parametrize(("way", "state"), [("claude", "good"), ("fails", "note")])
def test_a_command_is_asked_for_one_proposal(way: str, state: str, tmp_path: Path) -> None:
    program = ROOT / "tests" / "support" / "agent_program.py"
    words = [sys.executable, str(program), str(tmp_path), way, PROPOSAL]
    check = endpoint(Environment(proposer_command=shlex.join(words)))
    assert check.state == state
    assert len([*tmp_path.glob("asked-*.json")]) == 1
    assert endpoint(Environment(proposer_command="claude 'p")).state == "bad"


def node(tmp_path: Path, **changes: Any) -> Node:
    well = {"confines": True, "memory_gib": 100.0, "free_gib": 50.0}
    facts = find_facts(tmp_path).model_copy(update=well | changes)
    return Node("spark1", Machine("0" * 56, "spark1", 20, 1), facts)


@pytest.mark.parametrize(
    ("device", "changes", "states"),
    [
        ("cpu", {}, ["good"]),
        ("cpu", {"code": "0.1.0 (abc)"}, ["bad"]),
        ("cpu", {"torch": "2.0"}, ["bad"]),
        ("cpu", {"disk": "Read-only file system"}, ["bad"]),
        ("cpu", {"free_gib": 0.1}, ["bad"]),
        ("cpu", {"free_gib": 1.0}, ["good", "note"]),
        ("cpu", {"confines": False}, ["bad"]),
        ("cuda", {"gpus": ()}, ["bad"]),
    ],
)
def test_a_node_that_will_do_is_one_line_and_each_fault_has_its_own(
    tmp_path: Path, device: str, changes: dict[str, Any], states: list[str]
) -> None:
    checks = list(examine_node(node(tmp_path, **changes), device))
    assert [check.state for check in checks] == states


@pytest.mark.parametrize(
    ("free_gib", "state"), [(0.01, "bad"), (0.3, "note"), (1.9, "note"), (2.1, "good")]
)
def test_only_a_disk_that_holds_no_campaign_is_bad(free_gib: float, state: str) -> None:
    assert disk_state(free_gib) == state


@pytest.mark.parametrize("executor", ["slurm", "ray:127.0.0.1:9"])
def test_where_there_is_no_cluster_one_check_says_so(executor: str) -> None:
    pytest.importorskip("ray")
    [check] = examine_cluster(executor)
    assert check.state == "bad"


def test_a_menu_made_for_a_gpu_needs_one_on_each_node(tmp_path: Path) -> None:
    assert demands("spark-354m", tmp_path) == ("cuda", None)
    assert demands("cpu-tiny", tmp_path) == demands("no-such-menu", tmp_path) == ("cpu", None)
