"""Test that energy, summaries and telemetry.csv agree with sums by hand and survive a crash."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.telemetry.sample import Sample, TelemetryFile
from trainer.telemetry.summary import (
    DeviceUse,
    MeanAndPeak,
    device_text,
    summarize,
    use_between,
    watt_hours,
)

J = 1 / 3600
"""One joule in watt-hours."""


REACH_S = 4


def samples_of(*readings: tuple[float, float | None, float | None]) -> list[Sample]:
    """Return samples of (time in s, power in W, counter in J)."""
    return [
        sample(at_s, power_w=power_w, energy_mj=None if joules is None else round(joules * 1000))
        for at_s, power_w, joules in readings
    ]


def sample(at_s: float, **answers: object) -> Sample:
    return Sample(at="", monotonic_s=at_s, **answers)  # type: ignore[arg-type]


POWER = samples_of((10, 100, None), (12, 200, None), (16, 400, None))
COUNTED = samples_of((10, 100, 7000), (12, 100, 7500), (14, 100, 7600))
RESET = samples_of((0, 100, 9000), (2, 100, 9200), (4, 300, 50), (6, 300, 650))
RESET_WITHOUT_POWER = samples_of((0, None, 9000), (2, None, 50), (4, None, 90))
STOPPED = samples_of((0, 100, 1000), (2, 100, 1250), (4, 100, None), (6, 200, None))
HOLED = samples_of((0, 100, None), (2, None, None), (4, 100, None), (6, 100, None))


@pytest.mark.parametrize(
    ("of", "since", "until", "joules"),
    [
        (POWER, 10, 16, 1500),  # trapezoids: (100 + 200) / 2 × 2 + (200 + 400) / 2 × 4
        (POWER, 11, 12, 150),  # half of the first
        (POWER, 13, 15, 600),
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
        (samples_of(), 0, 1, None),
        (samples_of((0, None, None), (2, None, None)), 0, 2, None),
    ],
)
def test_energy_is_the_sum_by_hand(
    of: list[Sample], since: float, until: float, joules: float | None
) -> None:
    found = watt_hours(of, since, until, reach_s=REACH_S)
    assert found == (None if joules is None else pytest.approx(joules * J))


@given(
    st.lists(
        st.tuples(st.floats(0.1, 5), st.floats(0, 1000), st.none() | st.floats(0, 1e6)),
        min_size=2,
        max_size=12,
    ),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_parts_of_an_interval_add_up(
    steps: list[tuple[float, float, float | None]], one: float, other: float
) -> None:
    times = list(itertools.accumulate(length_s for length_s, _, _ in steps))
    made = samples_of(*((at_s, *step[1:]) for at_s, step in zip(times, steps, strict=True)))
    begin, end = times[0], times[-1]
    # Rounding may lead an ulp beyond the end.
    first, second = sorted(min(begin + share * (end - begin), end) for share in (one, other))
    ends = ((begin, first), (first, second), (second, end), (begin, end))
    *parts, whole = (watt_hours(made, *both, reach_s=REACH_S) or 0.0 for both in ends)
    assert sum(parts) == pytest.approx(whole, abs=1e-6)
    assert watt_hours(made, begin, end, reach_s=REACH_S) is not None
    assert min(parts) >= 0


def test_means_are_over_time_not_over_samples() -> None:
    readings = ((0, 100), (8, 100), (8.1, 100), (8.2, 100), (10.2, 300))
    power = summarize([[sample(at_s, power_w=watts) for at_s, watts in readings]], 0.13).power_w
    assert power is not None
    assert (power.mean, power.peak) == (pytest.approx((8.2 * 100 + 2 * 200) / 10.2), 300)


def test_sessions_add_up_and_the_time_between_them_does_not() -> None:
    sessions = [
        samples_of((0, 3600, 9000), (10, 3600, 9040)),
        samples_of((0, 1800, 0.005), (30, 1800, None)),
    ]
    summary = summarize(sessions, 0.2)
    assert (summary.samples, summary.sampled_s) == (4, 40)
    assert summary.kwh == pytest.approx((40 + 54_000) / 3.6e6)
    assert summary.energy_source == "counter and power"
    assert summary.power_w is not None
    assert summary.power_w.mean == pytest.approx((10 * 3600 + 30 * 1800) / 40)


def test_the_cost_shows_its_formula() -> None:
    summary = summarize([[sample(0, power_w=54.0), sample(73.4 * 60, power_w=54.0)]], 0.13)
    assert summary.kwh == pytest.approx(0.06606)
    assert summary.cost_usd == pytest.approx(0.0085878)
    assert summary.lines() == (
        "power 54.0 mean, 54.0 peak W",
        "energy (GPU, by power) 0.066 kWh × $0.13/kWh = $0.01",
    )


def test_throttling_is_a_share_of_the_time_and_idleness_is_none() -> None:
    session = [
        sample(0, throttle_reasons=()),
        sample(6, throttle_reasons=("gpu_idle",)),
        sample(8, throttle_reasons=("sw_power_cap", "hw_thermal_slowdown")),
    ]
    share = pytest.approx(0.25)
    throttled = {"hw_thermal_slowdown": share, "sw_power_cap": share}
    assert summarize([session], 0).throttled == throttled


def test_one_sample_is_its_own_mean_and_no_energy() -> None:
    only = sample(5, power_w=80.0, gpu_util_pct=50.0, mem_used_gib=3.0, mem_total_gib=120.0)
    summary = summarize([[only]], 0.13)
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
    assert TelemetryFile(path).sessions == [[FULL, BARE, QUIET]]


def test_mean_and_peak_of_a_campaigns_device_in_words(path: Path) -> None:
    assert device_text(path.parent) == ""
    watts = ((0.0, 100.0), (2.0, 300.0), (4.0, 100.0))
    write(path, *(sample(at_s, power_w=watt, temperature_c=50.0) for at_s, watt in watts))
    said = device_text(path.parent)
    assert "300 W" in said and "50 °C" in said


def test_a_time_that_is_no_later_begins_a_session(path: Path) -> None:
    write(path, FULL, BARE)
    write(path, FULL, QUIET)
    write(path, FULL)
    assert TelemetryFile(path).sessions == [[FULL, BARE], [FULL, QUIET], [FULL]]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "a torn header": lambda _: b"at,elapsed",
    "a tail of zeros": lambda whole: whole + b"\0" * 512,
    "zeros in a line": lambda whole: whole + LINE.replace(b"2.000", b"2.\0\0\0"),
    "a word for a number": lambda whole: whole + LINE.replace(b"2.000", b"four"),
    **{
        f"torn after {kept}": lambda whole, kept=kept: whole + LINE[:kept]  # type: ignore[misc]
        for kept in (1, 20, 40)
    },
    **{
        repr(line): lambda whole, line=line: whole + line + b"\n"  # type: ignore[misc]
        for line in (
            *(b"2026-01", b"a,nan,,,,,,,,,", b"a,inf,,,,,,,,,"),
            *(b"a,1,,,,,,,,,,12", b",,,,,,,,,,"),
        )
    },
}
LINE = b"2026-01-02T03:04:07.678+00:00,2.000,,55.800,,,,,,,\n"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_left_out_and_the_next_session_follows(path: Path, damage: str) -> None:
    write(path, FULL)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    write(path, QUIET)
    keeps = path.read_bytes().startswith(whole)
    read = list(itertools.chain.from_iterable(TelemetryFile(path).sessions))
    assert read == ([FULL, QUIET] if keeps else [QUIET])
    assert keeps == (damage not in {"nothing", "a torn header"})


def test_another_versions_file_is_put_aside(path: Path) -> None:
    path.write_text("time,watts\n", "utf-8")
    write(path, FULL)
    assert path.with_name("telemetry.old.csv").read_text("utf-8") == "time,watts\n"
    assert TelemetryFile(path).sessions == [[FULL]]


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
def test_a_line_without_room_is_an_error_and_leaves_nothing(path: Path, room_bytes: int) -> None:
    write(path, BARE)
    room = path.stat().st_size + room_bytes
    command = [sys.executable, "-c", FILL, str(path), str(room)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (1, "OSError")
    assert path.stat().st_size == room
    assert TelemetryFile(path).sessions == [[BARE]]


USED = [sample(at_s, gpu_util_pct=pct) for at_s, pct in ((0, 0), (2, 80), (4, 100), (6, 20))]


@pytest.mark.parametrize(
    ("since", "until", "mean", "peak"),
    [
        (0, 6, (40 * 2 + 90 * 2 + 60 * 2) / 6, 100),
        (1.5, 4, 90, 100),
        (1.5, 2.5, 80, 80),
        (2.5, 3.5, 90, 100),  # between two samples: both
        (6.5, 7, 20, 20),
        (-2, -1, 0, 0),
    ],
)
def test_the_use_of_an_interval_is_that_of_its_samples(
    since: float, until: float, mean: float, peak: float
) -> None:
    use = use_between(USED, since, until)
    assert use.gpu_util_pct is not None
    assert (use.gpu_util_pct.mean, use.gpu_util_pct.peak) == (pytest.approx(mean), peak)
    assert use.power_w is None
    assert use_between([], since, until) == DeviceUse()
