"""Read the page's parts that the tests check."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.trajectory.live.server import Server
from trajectory.rows import IterationRow


def rows_shown(page: Page) -> list[int]:
    cells = page.locator("#rows tbody tr.row td:first-child").all_inner_texts()
    return [int(text) for text in cells]


def shows(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(page.locator("#rows tbody tr.row").first).to_be_visible()


def last_iteration(row: object) -> IterationRow:
    assert isinstance(row, IterationRow)
    return row
