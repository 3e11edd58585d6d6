"""The sampler's thread runs on devices that answer, stall and die."""

import csv
import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from tests.support.commands import command, command_spec
from tests.support.nvml import GIB, FakeDevice, FakeNvml, h200, held, not_supported
from tests.support.present import known
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_until
from trainer.schema import CommandOk, TrialFailed, TrialOk
from trainer.telemetry import NoTelemetry, Sample, Sampler, Telemetry, metering
from trainer.telemetry.nvml import choose_telemetry

OFTEN_S = 0.02


def telemetry_of(device: FakeDevice) -> Telemetry:
    return choose_telemetry("cuda", nvml=FakeNvml(device))


def lines(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Paced:
    """Device whose counter and power follow a law of time that the test knows."""

    description = "paced"

    def __init__(self, *, power_w: float | None = None, joules_per_s: float | None = None) -> None:
        self._power_w = power_w
        self._joules_per_s = joules_per_s
        self.closed = threading.Event()

    def sample(self) -> Sample:
        now_s = time.monotonic()
        counted = None if self._joules_per_s is None else int(now_s * self._joules_per_s * 1000)
        return Sample(at="now", monotonic_s=now_s, power_w=self._power_w, energy_mj=counted)

    def memory(self) -> None:
        """Report no memory."""

    def close(self) -> None:
        self.closed.set()


def test_it_samples_for_as_long_as_it_runs_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    with Sampler(telemetry_of(h200()), path, interval_s=OFTEN_S):
        wait_until(lambda: len(lines(path)) >= 5)
    written = lines(path)
    assert {row["power_w"] for row in written} == {"612.345"}
    assert {row["throttle_reasons"] for row in written} == {"sw_power_cap"}
    elapsed = [float(row["elapsed_s"]) for row in written]
    assert elapsed[0] == 0
    assert elapsed == sorted(elapsed)
    assert lines(path) == written


def test_it_closes_its_telemetry_when_it_ends() -> None:
    paced = Paced(power_w=10)
    with Sampler(paced, None, interval_s=OFTEN_S):
        assert not paced.closed.is_set()
    assert paced.closed.is_set()


def test_the_counter_is_read_at_both_ends_of_an_interval() -> None:
    with Sampler(Paced(joules_per_s=720), None, interval_s=60) as sampler:
        since_s = sampler.mark()
        time.sleep(0.1)
        until_s = sampler.mark()
        # Only samples taken on demand fall within these 60 s, also past the last of them.
        expected_wh = 720 * (until_s - since_s) / 3600
        assert sampler.energy_wh(since_s, until_s) == pytest.approx(expected_wh, rel=1e-4)
        assert sampler.summary(0).samples >= 2
        time.sleep(0.05)
        later_s = time.monotonic()
        expected_wh = 720 * (later_s - since_s) / 3600
        assert sampler.energy_wh(since_s, later_s) == pytest.approx(expected_wh, rel=1e-3)


def test_without_an_end_the_interval_ends_now() -> None:
    with Sampler(Paced(power_w=3600), None, interval_s=60) as sampler:
        since_s = sampler.mark()
        time.sleep(0.05)
        before_s = time.monotonic()
        energy_wh = known(sampler.energy_wh(since_s))
        assert before_s - since_s <= energy_wh <= time.monotonic() - since_s


def test_where_nothing_answers_it_ends_at_once_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    notes: list[str] = []
    with Sampler(NoTelemetry("no GPU"), path, on_note=notes.append) as sampler:
        assert sampler.energy_wh(sampler.mark()) is None
        assert sampler.summary(0.13).kwh is None
    assert not path.exists()
    assert notes == []


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "DRIVER_NOT_LOADED", "UNKNOWN"])
def test_a_driver_that_dies_ends_sampling_with_one_note(tmp_path: Path, error: str) -> None:
    path = tmp_path / "telemetry.csv"
    device, notes = h200(), list[str]()
    with Sampler(telemetry_of(device), path, interval_s=OFTEN_S, on_note=notes.append) as sampler:
        since_s = sampler.mark()
        until_s = sampler.mark()
        device.dead = pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{error}"))
        wait_until(lambda: bool(notes))
        before = lines(path)
        assert sampler.energy_wh(since_s, until_s) == 0  # the fake's counter does not move
        assert sampler.energy_wh(time.monotonic() + 1) is None
    assert len(notes) == 1
    assert lines(path) == before
    assert len(before) >= 2


def test_a_query_that_hangs_holds_up_nobody() -> None:
    device, notes = h200(), list[str]()
    release = threading.Event()
    sampler = Sampler(
        telemetry_of(device), None, interval_s=OFTEN_S, on_note=notes.append
    ).__enter__()
    since_s = sampler.mark()
    device.hang = release
    wait_until(lambda: device.asked["energy"] > device.asked["power"])
    try:
        began_s = time.monotonic()
        assert sampler.mark() >= began_s
        sampler.energy_wh(since_s)
        sampler.close()
        why = "a query to the driver has not returned; its thread is abandoned"
        assert notes == [f"telemetry: {why}"]
    finally:
        release.set()
    sampler.close()


def test_it_stops_at_once_between_samples() -> None:
    notes: list[str] = []
    sampler = Sampler(Paced(power_w=1), None, interval_s=60, on_note=notes.append).__enter__()
    sampler.mark()
    sampler.close()
    sampler.close()
    assert notes == [], "after two seconds it would have been left behind, with a note"


def test_a_resumed_campaign_counts_its_earlier_sessions(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.csv"
    sessions_s = 0.0
    for _ in range(2):
        began_s = time.monotonic()
        with Sampler(Paced(power_w=3600), path, interval_s=60) as sampler:
            since_s = sampler.mark()
            time.sleep(0.05)
            sampler.mark()
        sessions_s += time.monotonic() - began_s
        time.sleep(0.2)  # nobody samples between sessions
    summary = sampler.summary(usd_per_kwh=1000)
    written = lines(path)
    elapsed = [float(row["elapsed_s"]) for row in written]
    assert sum(late < early for early, late in itertools.pairwise(elapsed)) == 1
    assert path.read_text("utf-8").count("elapsed_s") == 1
    assert summary.samples == len(written)
    assert 0.1 <= summary.sampled_s <= sessions_s
    assert summary.kwh == pytest.approx(summary.sampled_s / 1000)
    assert summary.cost_usd == pytest.approx(summary.sampled_s)
    # An interval covers this session alone.
    assert sampler.energy_wh(since_s - 1000, since_s) is None


@pytest.mark.parametrize("power_w", [3600, None])
def test_a_result_has_the_energy_of_its_interval_if_it_is_known(power_w: float | None) -> None:
    spec = trial_spec()
    result = trial_ok(spec)
    with Sampler(Paced(power_w=power_w), None) as sampler:
        began_s = time.monotonic()
        with metering(sampler, spec) as metered:
            time.sleep(0.1)
            found = metered(result, ())
            failed = TrialFailed(status="oom", message="too large")
            assert metered(failed, ()) == failed
        took_s = time.monotonic() - began_s
    assert isinstance(found, TrialOk)
    assert found == result.model_copy(update={"energy_wh": found.energy_wh})
    if power_w is None:
        assert found.energy_wh is None
    else:
        assert 0.1 <= known(found.energy_wh) <= took_s  # 3600 W: one Wh per second


SCORED = CommandOk(score=1.0, train_s=1.0, setup_s=0.1, peak_mem_gib=0.5)
ON_A_GPU = command_spec(command=command(), device="cuda")


def test_a_commands_result_has_the_gpu_memory_of_its_processes_and_the_utilization() -> None:
    device = h200(processes=held({1: 9.0}))  # somebody else's
    with Sampler(telemetry_of(device), None, interval_s=60) as sampler:
        with metering(sampler, ON_A_GPU) as metered:
            device.answers["processes"] = held({1: 9.0, 77: 2.0, 78: 3.0})
            before = device.asked["processes"]
            wait_until(lambda: device.asked["processes"] >= before + 2)  # without a new sample
            device.answers["processes"] = held({1: 9.0, 77: 4.0})
            before = device.asked["processes"]
            wait_until(lambda: device.asked["processes"] >= before + 2)
            found = metered(SCORED, {77, 78, 79})
            failed = metered(TrialFailed(status="oom", message="too large"), {77})
        asked = device.asked["processes"]
        sampler.mark()
        assert device.asked["processes"] == asked, "nobody watches any more"
    assert isinstance(found, CommandOk)
    assert (found.peak_gpu_mem_gib, found.peak_mem_gib) == (5.0, 0.5)
    assert found.gpu_util_pct == 97
    assert found.energy_wh == 0  # the fake's counter does not move
    assert isinstance(failed, TrialFailed)
    assert failed.peak_gpu_mem_gib == 4.0


def test_in_a_container_a_commands_gpu_memory_is_the_rise_of_the_whole_gpu() -> None:
    device = h200()
    with (
        Sampler(telemetry_of(device), None, interval_s=60) as sampler,
        metering(sampler, ON_A_GPU) as metered,
    ):
        for used_gib in (60, 45):
            device.answers["memory"] = SimpleNamespace(total=141 * GIB, used=used_gib * GIB)
            before = device.asked["processes"]
            wait_until(lambda before=before: device.asked["processes"] >= before + 2)
        found = metered(SCORED, {77})
    assert isinstance(found, CommandOk)
    assert found.peak_gpu_mem_gib == 60 - 41


def test_without_a_gpu_a_commands_result_stays_as_it_was() -> None:
    silent = {name: not_supported() for name in ("energy", "power", "utilisation")}
    for telemetry, spec in (
        (NoTelemetry("no GPU"), ON_A_GPU),
        (telemetry_of(h200(**silent)), command_spec(command=command())),
    ):
        with Sampler(telemetry, None) as sampler, metering(sampler, spec) as metered:
            found = metered(SCORED, {77})
        assert found.model_dump_json() == SCORED.model_dump_json()


def test_a_file_that_cannot_be_opened_is_one_note(tmp_path: Path) -> None:
    notes: list[str] = []
    path = tmp_path / "missing" / "telemetry.csv"
    with Sampler(Paced(power_w=10), path, interval_s=OFTEN_S, on_note=notes.append) as sampler:
        wait_until(lambda: sampler.summary(0).samples >= 3)
    assert len(notes) == 1
