"""A separate process draws each report once for each state of its campaign."""

import asyncio
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from autoresearch.errors import MachineryError
from tests.support.coroutines import finished
from tests.support.waiting import wait_for_all_gone
from tests.trajectory.live.server import append, last_iteration, serving, simulated, write_campaign
from trajectory.live import board
from trajectory.live.board import Drawer

COUNTS = """
import pathlib, sys
drawn = pathlib.Path(sys.argv[-3], "drawn")
drawn.open("a").write("x")
pathlib.Path(sys.argv[-1], "report.html").write_text(f"<p>{drawn.stat().st_size}</p>")
"""
NEVER_ENDS = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[-3], "begun").write_text(str(os.getpid()))
time.sleep(100_000)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def drawer(script: str) -> Drawer:
    return Drawer([sys.executable, "-c", script])


def test_a_report_is_drawn_once_for_each_state(tmp_path: Path, temporary: Path) -> None:
    async def ask() -> list[bytes]:
        draws = drawer(COUNTS)
        first = await asyncio.gather(draws.page(tmp_path, 7), draws.page(tmp_path, 7))
        return [*first, await draws.page(tmp_path, 8)]

    assert finished(ask()) == [b"<p>1</p>", b"<p>1</p>", b"<p>2</p>"]
    assert list(temporary.iterdir()) == []


def test_a_drawing_that_failed_is_an_error_and_is_tried_again(tmp_path: Path) -> None:
    fails_once = f"import pathlib\nif not pathlib.Path('{tmp_path}/tried').exists():\n"
    fails_once += f"    pathlib.Path('{tmp_path}/tried').touch(); raise SystemExit('no room')\n"

    async def ask() -> bytes:
        draws = drawer(fails_once + COUNTS)
        with pytest.raises(MachineryError, match=r"^no room$"):
            await draws.page(tmp_path, 7)
        return await draws.page(tmp_path, 7)

    assert finished(ask()) == b"<p>1</p>"


def test_a_drawing_ends_with_its_call_or_its_time(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel() -> psutil.Process:
        task = asyncio.ensure_future(drawer(NEVER_ENDS).page(tmp_path, 7))
        begun = tmp_path / "begun"
        while not (begun.exists() and begun.read_text()):
            await asyncio.sleep(0.01)
        process = psutil.Process(int(begun.read_text()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return process

    # What ends it is the call: the drawing's time, and the process's own, are beyond this test's.
    monkeypatch.setattr(board, "DRAWING_S", 50_000.0)
    wait_for_all_gone([finished(cancel())])
    monkeypatch.setattr(board, "DRAWING_S", 0.0)
    with pytest.raises(MachineryError):
        finished(drawer(NEVER_ENDS).page(tmp_path, 7))
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_the_page_links_to_the_report_in_its_sandbox(page: Page, tmp_path: Path) -> None:
    rows = simulated(12)
    journal = write_campaign(tmp_path / "c", rows[:-1])
    with serving(tmp_path) as server:
        page.goto(server.url)
        with page.context.expect_page() as opened:
            page.locator("#report[href]").click()  # a link once the page has its data
        report = opened.value
        faults: list[str] = []
        report.on("pageerror", lambda error: faults.append(str(error)))
        lines = report.locator("#iterations tr.row")
        expect(lines).to_have_count(last_iteration(rows[-2]).iter)
        lines.first.locator("button").click()
        expect(report.locator("#iterations .card").first).to_be_visible()
        assert report.locator("figure svg").count() > 3
        assert report.evaluate("window.origin") == "null"
        append(journal, rows[-1])
        expect(page.locator("#rows tr.row")).to_have_count(last_iteration(rows[-1]).iter)
        report.reload()
        expect(lines).to_have_count(last_iteration(rows[-1]).iter)
        assert faults == []
