"""Run the installed command as a real server over campaigns on disk, and read its page."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

from tests.support import reports
from tests.support.campaigns import COMMAND
from tests.support.rows import write_journal
from trajectory.live.app import Access, create_app
from trajectory.live.board import Board
from trajectory.rows import IterationRow, Row, dump_row

TOKEN = "a-token-of-some-length-0123456789"


@dataclass(frozen=True, slots=True)
class Server:
    """Running ``autoresearch serve``."""

    url: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def client(self, **headers: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=headers, timeout=None)


@contextmanager
def serving(*places: Path, port: int = 0, token: str | None = None) -> Iterator[Server]:
    """Run a server on loopback, and end it with SIGTERM."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("AUTORESEARCH_SERVE_TOKEN", None)
    if token is not None:
        environment["AUTORESEARCH_SERVE_TOKEN"] = token
    process = subprocess.Popen(
        [COMMAND, "serve", "--port", str(port), *map(str, places)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.match(r"(http://\S+)", first)
        assert found, first + process.stdout.read()
        yield Server(found[1], process)
    finally:
        process.terminate()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()


def client(*places: Path, token: str | None = None, draw: Sequence[str] = ("true",)) -> TestClient:
    """Return a client of the application, which has read its campaigns once."""
    board = Board(places, draw)
    board.poll()
    app = create_app(board, Access(token), lambda *_: pytest.fail("no proposal is made here"))
    return TestClient(app, base_url="http://localhost", follow_redirects=False)


def write_campaign(directory: Path, rows: list[Row]) -> Path:
    """Write a campaign's journal; return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    write_journal(directory / "trajectory.jsonl", rows)
    return directory / "trajectory.jsonl"


def simulated(count: int, seed: int = 3) -> list[Row]:
    """Return a campaign's rows, with a menu that can be read."""
    return reports.simulated(count, seed)


def append(journal: Path, row: Row) -> None:
    with journal.open("a", encoding="utf-8") as file:
        file.write(dump_row(row) + "\n")


def rows_shown(page: Page) -> list[int]:
    cells = page.locator("#rows tbody tr.row td:first-child").all_inner_texts()
    return [int(text) for text in cells]


def shows(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.locator("#rows tbody tr.row").first).to_be_visible()


def last_iteration(row: object) -> IterationRow:
    assert isinstance(row, IterationRow)
    return row
