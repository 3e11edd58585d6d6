"""Two torchruns on this machine act as two nodes of two ranks each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from funnel.plan.scripts import measure_fabric
from tests.support.ports import free_port


def node(rank: int, nodes: int, port: int, *more: object, each: int = 1) -> subprocess.Popen[str]:
    where = f"--nnodes {nodes} --node-rank {rank} --nproc-per-node {each}".split()
    master = f"--master-addr 127.0.0.1 --master-port {port}".split()
    own = f"{measure_fabric.__file__} --gpus-per-node {each} --megabytes 2 --repeats 2".split()
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *where, *master, *own, *map(str, more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_the_bandwidth_between_nodes_is_measured_and_judged(tmp_path: Path) -> None:
    port = free_port()
    out = tmp_path / "fabric.json"
    both = [node(rank, 2, port, "--output", out, each=2) for rank in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    seen = json.loads(out.read_text())
    assert (seen["nodes"], seen["gpus"]) == (2, 2)
    assert seen["fabric_gb_s"] > 0.001
    assert "passed" in said[0][0]
    port = free_port()
    both = [node(rank, 2, port, "--least", 1e6) for rank in range(2)]
    said = [process.communicate() for process in both]
    assert all(process.returncode for process in both)
    assert "FAILED" in said[0][0]
    alone = node(0, 1, free_port())
    assert "fewer than two nodes" in alone.communicate()[1]
    assert alone.returncode
