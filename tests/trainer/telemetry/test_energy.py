"""Test that energy, summaries and telemetry.csv agree with sums by hand and survive a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.telemetry.sample import Sample, TelemetryFile
from trainer.telemetry.summary import EnergyMeter, MeanAndPeak, Tally

J = 1 / 3600
"""One joule in watt-hours."""


def meter(*samples: tuple[float, float | None, float | None], reach_s: float = 4) -> EnergyMeter:
    """Return a meter with samples of (time in s, power in W, counter in J)."""
    made = EnergyMeter(reach_s)
    for at_s, power_w, counter_j in samples:
        counter_mj = None if counter_j is None else round(counter_j * 1000)
        made.add(Sample(at="", monotonic_s=at_s, power_w=power_w, energy_mj=counter_mj))
    return made


POWER = meter((10, 100, None), (12, 200, None), (16, 400, None))
COUNTED = meter((10, 100, 7000), (12, 100, 7500), (14, 100, 7600))
RESET = meter((0, 100, 9000), (2, 100, 9200), (4, 300, 50), (6, 300, 650))
RESET_WITHOUT_POWER = meter((0, None, 9000), (2, None, 50), (4, None, 90))
STOPPED = meter((0, 100, 1000), (2, 100, 1250), (4, 100, None), (6, 200, None))
HOLED = meter((0, 100, None), (2, None, None), (4, 100, None), (6, 100, None))


@pytest.mark.parametrize(
    ("of", "since", "until", "joules"),
    [
        (POWER, 10, 16, 1500),  # trapezoids: (100 + 200) / 2 × 2 + (200 + 400) / 2 × 4
        (POWER, 11, 12, 175),  # 150 W at 11 s: (150 + 200) / 2 × 1
        (POWER, 13, 15, 600),  # 250 W to 350 W
        (POWER, 13, 13, 0),
        (POWER, 9, 12, 400),  # power holds a little beyond the samples
        (POWER, 17, 18, 400),
        (POWER, 5, 12, None),  # and no further
        (POWER, 12, 21, None),
        (POWER, 14, 12, None),
        (COUNTED, 10, 14, 600),  # the counter goes before power
        (COUNTED, 11, 13, 300),
        (RESET, 0, 6, 200 + 400 + 600),  # power bridges the step where it starts again
        (RESET_WITHOUT_POWER, 0, 4, None),
        (RESET_WITHOUT_POWER, 2, 4, 40),
        (STOPPED, 0, 6, 250 + 200 + 300),
        (HOLED, 4, 6, 200),
        (HOLED, 0, 6, None),  # a hole is not guessed
        (HOLED, 3, 6, None),
        (meter(), 0, 1, None),
        (meter((0, None, None), (2, None, None)), 0, 2, None),
    ],
)
def test_energy_is_the_sum_by_hand(
    of: EnergyMeter, since: float, until: float, joules: float | None
) -> None:
    assert of.wh(since, until) == (None if joules is None else pytest.approx(joules * J))


readings = st.lists(
    st.tuples(
        st.floats(0.1, 5),
        st.floats(0, 1000),
        st.none() | st.floats(0, 1e6),
    ),
    min_size=2,
    max_size=12,
)


@given(readings, st.floats(0, 1), st.floats(0, 1))
def test_parts_of_an_interval_add_up(
    steps: list[tuple[float, float, float | None]], one: float, other: float
) -> None:
    at_s = 0.0
    samples = []
    for length_s, power_w, counter_j in steps:
        at_s += length_s
        samples.append((at_s, power_w, counter_j))
    made = meter(*samples)
    begin, end = samples[0][0], samples[-1][0]
    first, second = sorted((begin + one * (end - begin), begin + other * (end - begin)))
    parts = [made.wh(*ends) for ends in ((begin, first), (first, second), (second, end))]
    whole = made.wh(begin, end)
    assert whole is not None
    assert sum(part for part in parts if part is not None) == pytest.approx(whole, abs=1e-6)
    assert all(part is not None and part >= 0 for part in parts)


def sample(at_s: float, **answers: object) -> Sample:
    return Sample(at="", monotonic_s=at_s, **answers)  # type: ignore[arg-type]


def test_means_are_over_time_not_over_samples() -> None:
    tally = Tally()
    for at_s, power_w in ((0, 100), (8, 100), (8.1, 100), (8.2, 100), (10.2, 300)):
        tally.add(sample(at_s, power_w=power_w))
    power = tally.summary(0.13).power_w
    assert power is not None
    assert power.mean == pytest.approx((8.2 * 100 + 2 * 200) / 10.2)
    assert power.peak == 300


def test_sessions_add_up_and_the_time_between_them_does_not() -> None:
    tally = Tally()
    tally.add(sample(0, power_w=3600, energy_mj=9_000_000), continues=False)
    tally.add(sample(10, power_w=3600, energy_mj=9_040_000))
    tally.add(sample(0, power_w=1800, energy_mj=5), continues=False)
    tally.add(sample(30, power_w=1800))
    summary = tally.summary(0.2)
    assert summary.samples == 4
    assert summary.sampled_s == 40
    assert summary.kwh == pytest.approx((40 + 54_000) / 3.6e6)
    assert summary.energy_source == "counter and power"
    assert summary.power_w is not None
    assert summary.power_w.mean == pytest.approx((10 * 3600 + 30 * 1800) / 40)
    assert summary.power_w.peak == 3600


def test_the_cost_shows_its_formula() -> None:
    tally = Tally()
    tally.add(sample(0, power_w=54.0), continues=False)
    tally.add(sample(73.4 * 60, power_w=54.0))
    summary = tally.summary(0.13)
    assert summary.kwh == pytest.approx(0.06606)
    assert summary.cost_usd == pytest.approx(0.0085878)
    assert summary.formula == "0.066 kWh × $0.13/kWh = $0.01"
    assert summary.lines() == (
        "power 54.0 mean, 54.0 peak W",
        "energy (GPU, by power) 0.066 kWh × $0.13/kWh = $0.01",
    )


def test_throttling_is_a_share_of_the_time_and_idleness_is_none() -> None:
    tally = Tally()
    tally.add(sample(0, throttle_reasons=()), continues=False)
    tally.add(sample(6, throttle_reasons=("gpu_idle",)))
    tally.add(sample(8, throttle_reasons=("sw_power_cap", "hw_thermal_slowdown")))
    assert tally.summary(0).throttled == {
        "hw_thermal_slowdown": pytest.approx(0.25),
        "sw_power_cap": pytest.approx(0.25),
    }


def test_one_sample_is_its_own_mean_and_no_energy() -> None:
    tally = Tally()
    tally.add(sample(5, power_w=80.0, gpu_util_pct=50.0, mem_used_gib=3.0, mem_total_gib=120.0))
    summary = tally.summary(0.13)
    assert summary.power_w == MeanAndPeak(mean=80, peak=80)
    assert (summary.mem_total_gib, summary.kwh, summary.cost_usd) == (120, None, None)
    assert summary.lines() == (
        "utilisation 50 mean, 50 peak % · power 80.0 mean, 80.0 peak W · "
        "memory 3.0 mean, 3.0 peak GiB",
    )


FULL = Sample(
    at="2026-01-02T03:04:05.678+00:00",
    monotonic_s=0.0,
    gpu_util_pct=97.0,
    power_w=612.345,
    temperature_c=61.0,
    sm_clock_mhz=1755.0,
    mem_clock_mhz=3201.0,
    throttle_reasons=("sw_power_cap", "hw_slowdown"),
    mem_used_gib=41.5,
    mem_total_gib=141.0,
    energy_mj=5_000_000_000,
)
BARE = Sample(at="2026-01-02T03:04:07.678+00:00", monotonic_s=2.0, power_w=55.8)
QUIET = Sample(at="2026-01-02T03:04:09.678+00:00", monotonic_s=4.0, throttle_reasons=())


def write(path: Path, *samples: Sample) -> None:
    file = TelemetryFile(path)
    for sample in samples:
        file.append(sample, sample.monotonic_s)
    file.close()


def read(path: Path) -> list[tuple[Sample, bool]]:
    file = TelemetryFile(path)
    try:
        return [(sample, continues) for sample, continues in file.read()]
    finally:
        file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.csv"


def test_a_line_for_each_sample_in_plain_numbers(path: Path) -> None:
    write(path, FULL, BARE, QUIET)
    assert path.read_text("utf-8").splitlines() == [
        "at,elapsed_s,gpu_util_pct,power_w,temperature_c,sm_clock_mhz,mem_clock_mhz,"
        "throttle_reasons,mem_used_gib,mem_total_gib,energy_mj",
        "2026-01-02T03:04:05.678+00:00,0.000,97,612.345,61,1755,3201,sw_power_cap|hw_slowdown,"
        "41.500,141.000,5000000000",
        "2026-01-02T03:04:07.678+00:00,2.000,,55.800,,,,,,,",
        "2026-01-02T03:04:09.678+00:00,4.000,,,,,,none,,,",
    ]
    assert read(path) == [(FULL, False), (BARE, True), (QUIET, True)]


@pytest.mark.parametrize("kept_bytes", [1, 20, 40])
def test_a_torn_last_line_is_cut_away(path: Path, kept_bytes: int) -> None:
    write(path, FULL)
    whole = path.read_bytes()
    write(path, BARE)
    torn = path.read_bytes()[: len(whole) + kept_bytes]
    path.write_bytes(torn)
    write(path, QUIET)
    assert path.read_bytes().startswith(whole)
    assert [sample for sample, _ in read(path)] == [FULL, QUIET]


def test_a_torn_header_and_a_tail_of_zeros_are_mended(path: Path) -> None:
    path.write_bytes(b"at,elapsed")
    write(path, FULL)
    path.write_bytes(path.read_bytes() + b"\0" * 512)
    write(path, BARE)
    assert [sample for sample, _ in read(path)] == [FULL, BARE]


def test_a_damaged_line_is_left_out(path: Path) -> None:
    write(path, FULL, BARE, QUIET)
    path.write_bytes(path.read_bytes().replace(b"2.000,,55.800", b"2.\0\0\0,,55.800"))
    assert [sample for sample, _ in read(path)] == [FULL, QUIET]
    path.write_bytes(path.read_bytes().replace(b"4.000,", b"four,"))
    assert [sample for sample, _ in read(path)] == [FULL]


def test_another_versions_file_is_put_aside(path: Path) -> None:
    for columns in ("time,watts\n", "seconds,watts\n"):
        path.write_text(columns, "utf-8")
        write(path, FULL)
    assert path.with_name("telemetry.1.csv").read_text("utf-8") == "time,watts\n"
    assert path.with_name("telemetry.2.csv").read_text("utf-8") == "seconds,watts\n"
    assert [sample for sample, _ in read(path)] == [FULL]


FILL = """
import resource, sys
from pathlib import Path
from tests.trainer.telemetry.test_energy import FULL, TelemetryFile

file = TelemetryFile(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    file.append(FULL, 0.0)
except OSError as error:
    sys.exit(f"{type(error).__name__}")
"""


@pytest.mark.parametrize("room_bytes", [0, 20])
def test_a_line_that_finds_no_room_is_an_error_and_leaves_nothing(
    path: Path, room_bytes: int
) -> None:
    write(path, BARE)
    room = path.stat().st_size + room_bytes
    command = [sys.executable, "-c", FILL, str(path), str(room)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (1, "OSError")
    assert path.stat().st_size == room
    assert [sample for sample, _ in read(path)] == [BARE]
