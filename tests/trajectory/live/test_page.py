"""Render the page in a real headless Chromium."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.trajectory.live.pages import last_iteration, rows_shown, shows
from tests.trajectory.live.server import (
    append,
    serving,
    simulated,
    write_campaign,
)
from trajectory.proposals import Attempt, Proposal
from trajectory.rows import IterationRow

TOKEN = "a-token-of-some-length-0123456789"
HOSTILE = (
    '<script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">'
    '</pre></td><svg onload="window.stolen=1">\u2028\u202e"\'`${1}{{7*7}}'
)


def test_each_new_row_appears_on_an_open_page(page: Page, tmp_path: Path) -> None:
    rows = simulated(25)
    new = [last_iteration(row) for row in rows[-5:]]
    journal = write_campaign(tmp_path / "c", rows[:-5])
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator("#link")).to_have_text("live")
        for row in new:
            append(journal, row)
            line = page.locator(f'#rows tr.row[data-iter="{row.iter}"]')
            expect(line).to_be_visible(timeout=300_000)
        assert rows_shown(page) == list(range(new[-1].iter, 0, -1))
        assert page.locator("#trajectory canvas").count() == 1


@pytest.mark.slow
def test_it_survives_the_server_s_restart(page: Page, tmp_path: Path) -> None:
    rows = simulated(20)
    new = last_iteration(rows[-1])
    journal = write_campaign(tmp_path / "c", rows[:-1])
    with serving(tmp_path) as server:
        shows(page, server)
    expect(page.locator("#link")).to_have_class("link lost", timeout=10_000)
    append(journal, new)
    with serving(tmp_path, port=server.port):
        expect(page.locator("#link")).to_have_text("live", timeout=20_000)
        expect(page.locator(f'#rows tr.row[data-iter="{new.iter}"]')).to_be_visible(timeout=5000)


def test_hostile_text_is_shown_and_does_nothing(page: Page, tmp_path: Path) -> None:
    rows = simulated(15)
    row = last_iteration(rows[-1])
    hostile = row.model_copy(
        update={
            "proposal": Proposal(changes={"lr": HOSTILE, HOSTILE: 1}, reason=HOSTILE),
            "proposer": row.proposer.model_copy(
                update={"kind": HOSTILE, "attempts": (Attempt(raw=HOSTILE, error=HOSTILE),)}
            ),
        }
    )
    # A directory's name is untrusted text, too.
    directory = tmp_path / '<img src=x onerror="window.stolen=1">'
    write_campaign(directory, [*rows[:-1], hostile])
    with serving(tmp_path) as server:
        shows(page, server)
        page.locator(f'#rows tr.row[data-iter="{hostile.iter}"]').click()
        more = page.locator("#rows tr.more")
        expect(more).to_contain_text("window.stolen = 1")
        assert page.locator("#name").inner_text() == directory.name
        assert page.evaluate("window.stolen") is None
        assert page.locator("#campaign script, #campaign img, #campaign svg").count() == 0


def test_a_script_that_got_in_would_not_run(browser: Browser, tmp_path: Path) -> None:
    write_campaign(tmp_path / "c", simulated(6))
    with serving(tmp_path) as server, browser.new_context() as context:
        page = context.new_page()
        shows(page, server)
        with page.expect_console_message(lambda said: "Content Security Policy" in said.text):
            ran = page.evaluate(
                """() => {
                    const script = document.createElement("script");
                    script.textContent = "window.stolen = 1";
                    document.body.append(script);
                    return window.stolen;
                }"""
            )
        assert ran is None


def test_pausing_and_resuming_from_the_page(page: Page, tmp_path: Path) -> None:
    write_campaign(tmp_path / "c", simulated(6))
    with serving(tmp_path) as server:
        shows(page, server)
        button = page.locator("#pause")
        button.click()
        expect(button).to_have_text("Resume")
        assert (tmp_path / "c" / "pause").exists()
        button.click()
        expect(button).to_have_text("Pause before the next iteration")
        assert not (tmp_path / "c" / "pause").exists()


def test_campaigns_stand_side_by_side_and_one_is_chosen(page: Page, tmp_path: Path) -> None:
    write_campaign(tmp_path / "one", simulated(6))
    write_campaign(tmp_path / "two", simulated(9, seed=5))
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator("#board button")).to_have_count(2)
        for name in ("one", "two"):
            page.locator("#board button", has_text=name).click()
            expect(page.locator("#name")).to_have_text(name)


def test_iterations_that_an_import_left_out_stop_no_others(page: Page, tmp_path: Path) -> None:
    rows = [row for row in simulated(20) if not isinstance(row, IterationRow) or row.iter != 4]
    write_campaign(tmp_path / "c", rows)
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator('#rows tr.row[data-iter="5"]')).to_be_visible(timeout=5000)
        there = [row.iter for row in rows if isinstance(row, IterationRow)]
        assert rows_shown(page) == there[::-1]


@pytest.mark.slow
def test_the_report_s_figures_are_drawn_for_whoever_looks(page: Page, tmp_path: Path) -> None:
    write_campaign(tmp_path / "c", simulated(12))
    with serving(tmp_path) as server:
        shows(page, server)
        page.locator("#album summary").click()
        pictures = page.locator("#pictures img")
        expect(pictures.first).to_be_visible(timeout=200_000)
        assert pictures.count() >= 4
        assert (pictures.first.get_attribute("src") or "").split("?")[0].endswith("/progress.svg")
        for picture in pictures.all():
            picture.scroll_into_view_if_needed()
            page.wait_for_function("(one) => one.complete", arg=picture.element_handle())
            assert picture.evaluate("(one) => one.naturalWidth") > 100


def test_signing_in(page: Page, tmp_path: Path) -> None:
    write_campaign(tmp_path / "c", simulated(6))
    with serving(tmp_path, token=TOKEN) as server:
        page.goto(server.url)
        expect(page).to_have_url(f"{server.url}/login")
        expect(page.locator("#wrong")).to_be_hidden()
        page.fill("#token", "not the token at all")
        page.click("button")
        expect(page.locator("#wrong")).to_be_visible()
        page.fill("#token", TOKEN)
        page.click("button")
        expect(page.locator("#rows tbody tr.row").first).to_be_visible(timeout=20_000)
        assert TOKEN not in page.url


def test_no_pause_is_offered_where_nothing_reads_the_file(page: Page, tmp_path: Path) -> None:
    journal = write_campaign(tmp_path / "c", simulated(8))
    os.utime(journal, (1e9, 1e9))  # the campaign ended long ago
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator("#pause")).to_be_hidden()
