"""Configure how property tests draw their cases.

``make test`` and CI, which draws more, draw the same cases every time, so that an installation's
test result does not depend on luck or load. ``make explore`` draws new cases, more of them, from
seeds that it prints.
Neither keeps anything between runs, so the command alone determines the cases.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.campaigns import Toy

# A shell without job control starts background processes with SIGINT ignored, nohup with SIGHUP.
# The programs that these tests start would inherit that, and miss the signals that tests send them.
for number, default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, default)

settings.register_profile(
    "repeatable",
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=500,
)
settings.register_profile("ci", settings.get_profile("repeatable"), max_examples=30)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of many minutes, so that no worker ends the run alone with one."""
    items.sort(key=lambda item: not _is_long(item))


def pytest_collection_finish() -> None:
    """Keep the collector from visiting torch and thousands of tests again and again."""
    gc.freeze()


def _is_long(item: pytest.Item) -> bool:
    return any(marker.args[0] >= 1200 for marker in item.iter_markers("timeout"))


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder in which :meth:`tests.support.campaigns.Toy.begun` keeps its campaigns."""
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the environment
        shared = TemporaryDirectory(prefix="toy-")
        os.environ["TOY_CAMPAIGNS"] = shared.name
        config.add_cleanup(shared.cleanup)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_synced() -> Iterator[None]:
    """Skip the wait for the disk, which took a third of the time of some tests: no power is cut."""
    with mock.patch.object(os, "fsync", lambda _descriptor: None):
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Compute on one thread per worker: the threads of two workers would wait for each other's
    cores, which took three quarters of the time of tests of small models."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Return a place for a campaign that a test may begin."""
    from tests.support.campaigns import Toy  # the trainer's tests run without the agent's needs

    return Toy(tmp_path)
