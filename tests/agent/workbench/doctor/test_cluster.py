"""Check that the doctor reports the faults of a cluster's nodes, one line per fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.workbench.doctor.cluster import demands, examine_cluster, examine_node
from trainer.executors.ray.facts import Node, find_facts
from trainer.executors.ray.values import Machine

NOW_S = 1_800_000_000.0


def node(tmp_path: Path, store_bytes: float = 1e8, **changes: Any) -> Node:
    well = {
        "clock_s": NOW_S,
        "confines": True,
        "memory_monitor": "RAY_memory_monitor_refresh_ms=0",
        "memory_gib": 100.0,
        "free_gib": 50.0,
    }
    facts = find_facts(tmp_path).model_copy(update=well | changes)
    return Node("spark1", Machine("0" * 56, "spark1", 20, 1, store_bytes), facts)


def test_a_node_that_will_do_is_one_line(tmp_path: Path) -> None:
    [check] = examine_node(node(tmp_path), "cpu", NOW_S, 1.0)
    assert (check.name, check.state) == ("spark1", "good")
    assert "20 CPUs and 1 GPUs for Ray" in check.found


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"code": "0.1.0 (abc)"}, "bad"),
        ({"torch": "2.0"}, "bad"),
        ({"disk": "Read-only file system"}, "bad"),
        ({"free_gib": 0.5}, "bad"),
        ({"confines": False}, "bad"),
        ({"store_bytes": 38e9}, "note"),
        ({"memory_monitor": ""}, "note"),
        ({"clock_s": NOW_S - 90}, "note"),
        ({"clock_s": NOW_S + 91}, "note"),
    ],
)
def test_each_fault_has_its_line(tmp_path: Path, changes: dict[str, Any], state: str) -> None:
    checks = list(examine_node(node(tmp_path, **changes), "cpu", NOW_S, 1.0))
    [fault] = [check for check in checks if check.state != "good"]
    assert fault.state == state
    assert (len(checks) == 1) == (state == "bad")


def test_a_node_without_a_gpu_will_not_do_for_cuda(tmp_path: Path) -> None:
    checks = list(examine_node(node(tmp_path, gpus=()), "cuda", NOW_S, 1.0))
    assert [check.state for check in checks] == ["bad"]


@pytest.mark.parametrize("executor", ["slurm", "ray:127.0.0.1:9"])
def test_where_there_is_no_cluster_one_check_says_so(executor: str) -> None:
    pytest.importorskip("ray")
    [check] = examine_cluster(executor)
    assert check.state == "bad"


def test_a_menu_made_for_a_gpu_needs_one_on_each_node(tmp_path: Path) -> None:
    assert demands("spark-354m", tmp_path) == ("cuda", None)
    assert demands("cpu-tiny", tmp_path) == demands("no-such-menu", tmp_path) == ("cpu", None)
