"""Check that a tracking server that does not answer does not block an export."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from autoresearch.errors import FormatError
from trajectory.formats import mlflow_runs


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_server_is_given_up_soon(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "KNOCK_S", 0.5)
    with pytest.raises(FormatError):
        mlflow_runs._knock(silent)


def test_a_server_that_is_gone_is_told_of_at_once(silent: str) -> None:
    gone = silent.rsplit(":", 1)[0] + ":9"
    with pytest.raises(FormatError):
        mlflow_runs._knock(gone)
