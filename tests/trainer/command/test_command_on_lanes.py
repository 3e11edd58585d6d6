"""A command receives its lane's cores, threads and GPU."""

import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.commands import command, command_spec, script
from tests.support.nvml import FakeNvml, h200, held
from trainer.executors.base import Meter
from trainer.executors.choice import choose_executor
from trainer.executors.lanes import spots
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.process_tree import descendants
from trainer.schema import CommandOk
from trainer.telemetry import Sampler, choose_telemetry, metering

pytestmark = pytest.mark.skipif(
    Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial"
)
TELLS = """
import json, os, sys, time
time.sleep(0.4)
print("SEEN", json.dumps([sorted(os.sched_getaffinity(0)), sys.argv[1:],
                          os.environ.get("OMP_NUM_THREADS"),
                          os.environ.get("CUDA_VISIBLE_DEVICES")]))
print("val loss 1.0")
"""


def seen(tmp_path: Path, device: str = "cpu", **of_spec: Any) -> dict[str, Any]:
    """Return what each of two concurrent runs sees, by its lane's name."""
    argv = (sys.executable, "train.py", "{threads}", "{device}")
    told = command(argv=argv, directory=str(script(tmp_path / "script", TELLS)))
    found = {}
    with choose_executor(allow_unsandboxed=False, command=told, lanes=2, device=device) as executor:
        trials = [tmp_path / "campaign" / "trials" / name for name in ("t1", "t2")]
        jobs = [
            executor.submit(
                command_spec(command=told, trial_id=trial.name, device=device, **of_spec), trial
            )
            for trial in trials
        ]
        for job, trial in zip(jobs, trials, strict=True):
            finished = job.result()
            log = (trial / "trainer.log").read_text()
            assert finished.result.status == "scored", log
            assert finished.place is not None
            line = next(line for line in log.splitlines() if line.startswith("SEEN"))
            found[finished.place.lane] = json.loads(line.removeprefix("SEEN"))
    return found


def test_a_command_has_its_lane_s_cores_and_as_many_threads(tmp_path: Path) -> None:
    expected = {spot.name: list(spot.cores) for spot in spots(2, "cpu")}
    found = seen(tmp_path)
    assert {lane: one[0] for lane, one in found.items()} == expected
    for cores, words, _, _ in found.values():
        assert words == [str(len(cores)), "cpu"]


def test_threads_asked_for_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # a person's own setting stays
    for _, words, variable, _ in seen(tmp_path, threads=3).values():
        assert (words[0], variable) == ("3", "3")


def test_a_command_sees_its_own_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    found = seen(tmp_path, "cuda")
    assert {lane: (one[1][1], one[3]) for lane, one in found.items()} == {
        "0": ("cuda", "3"),
        "1": ("cuda", "5"),
    }


BUSY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"])
time.sleep(1.5)
print("val loss 1.0")
"""


def test_a_commands_gpu_memory_is_that_of_all_its_processes(tmp_path: Path) -> None:
    told = command(directory=str(script(tmp_path / "script", BUSY)))
    with LocalExecutor(entry=COMMAND_ENTRY) as executor:
        server = executor.lane.server.pid
        most = []

        def processes() -> object:
            below = list(descendants(server))
            most.append(len(below))
            return held(dict.fromkeys(below, 0.5) | {1: 40.0})

        telemetry = choose_telemetry("cuda", nvml=FakeNvml(h200(processes=processes)))
        with Sampler(telemetry, None) as sampler:
            executor.meter_by(lambda gpu: partial(metering, sampler))
            spec = command_spec(command=told, device="cuda")
            result = executor.run(spec, tmp_path / "campaign" / "trials" / "t1").result
    assert isinstance(result, CommandOk), result
    assert result.peak_gpu_mem_gib is not None
    assert 1.0 <= result.peak_gpu_mem_gib <= 0.5 * max(most), "the command and its child at least"
    assert result.gpu_util_pct == 97


def test_each_lane_is_metered_on_its_own_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-2222,1")
    gpus = [
        h200(f"GPU-{n}{n}{n}{n}", utilisation=SimpleNamespace(gpu=10 * (n + 1))) for n in range(3)
    ]
    told = command(directory=str(script(tmp_path / "script", TELLS)))
    found = {}
    with (
        ExitStack() as resources,
        choose_executor(allow_unsandboxed=False, command=told, lanes=2, device="cuda") as executor,
    ):

        def meter_of(gpu: str | None) -> Meter:
            telemetry = choose_telemetry("cuda", visible_devices=gpu, nvml=FakeNvml(*gpus))
            return partial(metering, resources.enter_context(Sampler(telemetry, None)))

        executor.meter_by(meter_of)
        trials = [tmp_path / "campaign" / "trials" / name for name in ("t1", "t2")]
        jobs = [
            executor.submit(command_spec(command=told, trial_id=trial.name, device="cuda"), trial)
            for trial in trials
        ]
        for finished in (job.result() for job in jobs):
            assert isinstance(finished.result, CommandOk), finished.result
            assert finished.place is not None
            found[finished.place.lane] = finished.result.gpu_util_pct
    assert found == {"0": 30, "1": 20}
