"""Provide servers over shared campaigns, a headless Chromium, and a page that logs no errors."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import chromium
from tests.trajectory.live.server import TOKEN, Server, serving, simulated, write_campaign


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=600_000)  # the suite's own timeout ends a wait in vain
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the campaigns that tests share: two to read, one to append to, one
    that is damaged."""
    runs = tmp_path_factory.mktemp("runs")
    write_campaign(runs / "first", simulated(40))
    write_campaign(runs / "second", simulated(12, seed=8))
    write_campaign(runs / "grows", simulated(25)[:-5])
    damaged = write_campaign(runs / "damaged", simulated(8))
    text = damaged.read_text("utf-8").replace('"kind":"baseline"', '"kind":"other"', 1)
    damaged.write_text(text, "utf-8")
    return runs


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[Server]:
    with serving(runs) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(runs: Path) -> Iterator[Server]:
    """Yield a server that asks for :data:`TOKEN`."""
    with serving(runs, token=TOKEN) as server:
        yield server


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(600_000)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    # The browser itself reports a server that is unreachable, and a refused proposal.
    assert [one for one in faults if "ERR_" not in one and "409 (Conflict)" not in one] == []
