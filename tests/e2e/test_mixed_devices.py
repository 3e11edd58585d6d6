"""A campaign on a cluster whose two nodes have processors of other names, through the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.accounts import nothing_is_amiss
from tests.support.campaigns import Toy
from tests.support.ray_clusters import LocalCluster, local_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OTHER = "a processor of another name"


def can_rename() -> bool:
    """Whether a process here may have another /proc/cpuinfo."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    if "model name" not in Path("/proc/cpuinfo").read_text():
        return False
    return subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    if not can_rename():
        pytest.skip("this process may not make a mount namespace")
    with local_cluster("spark1") as cluster:
        cluster.add("desk", processor=OTHER)
        yield cluster


def on(cluster: LocalCluster, *more: str) -> list[str]:
    return [f"--executor=ray:{cluster.address}", "--threads=1", *more]


def test_runs_are_paired_within_a_kind(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    done = toy.loop(6, *on(cluster, "--lanes=2", "--mixed-devices"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each seed on one kind of device: 1 on " in done.stdout
    rows = toy.rows()
    nothing_is_amiss(toy, 6)
    trials = [row["trial"] for row in rows if row["kind"] == "baseline"]
    trials += [trial for row in toy.iterations() for trial in row["trials"]]
    kinds = defaultdict(set)
    for trial in trials:
        kinds[trial["seed"]].add(trial["place"]["device"])
        assert (trial["place"]["node"] == "desk") == (trial["place"]["device"] == OTHER)
    assert {len(found) for found in kinds.values()} == {1}, "a seed was run on two kinds"
    assert len(set.union(*kinds.values())) == 2
    kept = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    assert OTHER in kept["device_kinds"]

    again = toy.loop(6, *on(cluster, "--executor=local"))
    assert again.returncode == 1
    assert "--mixed-devices is for the nodes of a cluster" in again.stderr
    resumed = toy.loop(8)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert toy.rows()[: len(rows)] == rows
    nothing_is_amiss(toy, 8)


def test_without_it_the_other_kind_is_left_out(cluster: LocalCluster, tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    done = toy.loop(1, *on(cluster, "--lanes=1"))
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "runs on unlike machines cannot be paired" in said
    assert "begin a campaign with --mixed-devices" in said
