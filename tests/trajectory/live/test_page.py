"""Render the page in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.trajectory.live.server import (
    append,
    last_iteration,
    rows_shown,
    serving,
    shows,
    simulated,
    write_campaign,
)
from trajectory.proposals import Attempt, Proposal

HOSTILE = (
    '<script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">'
    '</pre></td><svg onload="window.stolen=1">\u2028\u202e"\'`${1}{{7*7}}'
)


@pytest.mark.slow
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
            expect(line).to_be_visible()
        assert rows_shown(page) == list(range(new[-1].iter, 0, -1))
        assert page.locator("#trajectory canvas").count() == 1


def test_hostile_and_invisible_text_is_shown_and_does_nothing(page: Page, tmp_path: Path) -> None:
    rows = simulated(15)
    row, unseen = last_iteration(rows[-1]), last_iteration(rows[-2])
    told = Proposal(
        changes={"lr": "\u202egnp.exe"}, reason="zero\u200bwidth\u0007 \U000e0041 👩\u200d🔬"
    )
    rows[-2] = unseen.model_copy(update={"proposal": told})
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
        line = page.locator(f'#rows tr.row[data-iter="{unseen.iter}"]')
        expect(line.locator(".changes")).to_have_text("lr=⟨U+202E⟩gnp.exe")
        line.click()
        spelled = "zero⟨U+200B⟩width⟨U+0007⟩ ⟨U+E0041⟩ 👩\u200d🔬"
        expect(page.locator("tr.more pre").filter(has_text="zero")).to_have_text(spelled)


@pytest.mark.slow
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
