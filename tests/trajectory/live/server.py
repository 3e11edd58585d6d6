"""Run the installed command as a real server over campaigns on disk, and read its page."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from playwright.sync_api import Page, expect

from agent.menu.files import load_menu
from tests.support.rows import Simulator
from trajectory.rows import IterationRow, Row, dump_row

TOKEN = "a-token-of-some-length-0123456789"
COMMAND = Path(sys.executable).with_name("autoresearch")


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


def write_campaign(directory: Path, rows: list[Row]) -> Path:
    """Write a campaign's journal; return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    journal = directory / "trajectory.jsonl"
    journal.write_text("".join(dump_row(row) + "\n" for row in rows), "utf-8")
    return journal


def simulated(count: int, seed: int = 3) -> list[Row]:
    """Return a campaign's rows, with a menu that can be read."""
    first, *others = Simulator(seed=seed).rows(count)
    return [first.model_copy(update={"menu_toml": load_menu("cpu-tiny").toml}), *others]


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
