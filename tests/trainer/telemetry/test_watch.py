"""A trial's part of a device's memory, from what the driver names."""

import os

import pytest

from trainer.telemetry.sample import DeviceMemory
from trainer.telemetry.watch import MemoryWatch

HERE = os.getpid()
"""A process of this machine that is none of the trial's."""
OUTSIDE = 2**22 + 1
"""Above the kernel's largest process number, so no process of this machine."""


@pytest.mark.parametrize(
    ("seen", "peak_gib"),
    [
        ([(10, {}), (12, {7: 2.0}), (15, {7: 2.0, 8: 3.0}), (11, {8: 4.0})], 5.0),
        ([(10, {HERE: 10.0}), (13, {HERE: 10.0, 7: 3.0})], 3.0),
        ([(None, {}), (None, {7: 3.0})], 3.0),
        # no process is named, or only numbers of the machine outside this container
        ([(10, {}), (13, {}), (12, {})], 3.0),
        ([(10, {OUTSIDE: 10.0}), (13, {OUTSIDE: 10.0, OUTSIDE + 1: 3.0})], 3.0),
        # the driver knows this machine's processes, and the trial held nothing
        ([(10, {HERE: 10.0}), (30, {HERE: 30.0})], None),
        ([(10, {}), (10, {})], None),
        ([(None, {}), (None, {})], None),
        ([], None),
    ],
)
def test_the_peak_is_that_of_the_trials_processes(
    seen: list[tuple[float | None, dict[int, float]]], peak_gib: float | None
) -> None:
    watch = MemoryWatch()
    for used_gib, by_process_gib in seen:
        watch.add(DeviceMemory(used_gib, by_process_gib))
    assert watch.peak_gib({7, 8}) == peak_gib
