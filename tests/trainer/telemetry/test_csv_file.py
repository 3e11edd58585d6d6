"""telemetry.csv remains valid over sessions, power failures and versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.telemetry.sample import Sample, TelemetryFile

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
from tests.trainer.telemetry.test_csv_file import FULL, TelemetryFile

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
