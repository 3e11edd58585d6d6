import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.accounts import dump, rebuilt, rest_faults
from tests.support.campaigns import Toy, killed_after
from tests.support.postgres import Server
from tests.support.waiting import wait_beside, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[Server]:
    reason = postgres.why_not()
    if reason is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


@pytest.fixture
def toy(tmp_path: Path, database: Server) -> Toy:
    toy = Toy(tmp_path)
    toy.environment["AUTORESEARCH_HISTORY_URL"] = database.url
    return toy


def iterations(toy: Toy) -> int:
    return len(toy.iterations())


def indexed(database: Server) -> int:
    """Return the number of the journal's rows in the database."""
    return len(dump(database.url))


def test_a_server_that_dies_is_caught_up_once_it_is_back(toy: Toy, database: Server) -> None:
    # With this z_keep many candidates are kept.
    night, said = toy.start_night("--set=z_keep=0")
    with killed_after(night) as running:
        wait_beside(running, said, lambda: iterations(toy) >= 2)
        database.kill()
        without = iterations(toy)
        # The night goes on without it.
        wait_beside(running, said, lambda: iterations(toy) >= without + 3)
        database.start()
        missed = len(toy.rows())
        wait_beside(running, said, lambda: indexed(database) > missed)
        running.send_signal(signal.SIGINT)
        running.wait()
    output = said.read_text()
    assert running.returncode == 130, output
    assert output.count("the history lags behind the journal") == 1, "said once"
    assert "secret" not in output
    assert dump(database.url) == rebuilt(toy.campaign / "trajectory.jsonl")

    # One that is back after the session is caught up by the next.
    done = iterations(toy)
    running = toy.start(done + 8, "--set=z_keep=0")
    wait_until(lambda: iterations(toy) >= done + 2)
    database.kill()
    output, _ = running.communicate()
    assert running.returncode == 0, output
    refused = toy.loop(done + 9)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    database.start()
    assert indexed(database) < len(toy.rows())
    assert toy.loop(done + 9).returncode == 0
    assert rest_faults(toy.campaign, database.url) == []
