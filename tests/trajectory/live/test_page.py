"""Render the page in a real headless Chromium: its rows, its queue and its comparison."""

from __future__ import annotations

import json
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
from trajectory.queue import add, queued_in
from trajectory.rows import EventRow

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


def test_the_page_proposes_withdraws_compares_and_shows_trouble(page: Page, tmp_path: Path) -> None:
    hostile = '<img src=x onerror="window.stolen=1">'
    journal = write_campaign(tmp_path / "c", simulated(8))
    directory = journal.parent
    with serving(tmp_path) as server:
        shows(page, server)
        page.locator("#propose [name=changes]").fill("lr=7")
        page.locator("#propose button").click()
        expect(page.locator("#proposed")).to_contain_text("range")
        assert queued_in(directory) == []

        page.locator("#propose [name=changes]").fill("lr=0.00123 ")
        page.locator("#propose [name=reason]").fill(hostile)
        page.locator("#propose [name=author]").fill("ada")
        page.locator("#propose button").click()
        row = page.locator("#queue tr")
        expect(row).to_contain_text("lr=0.00123")
        expect(row).to_contain_text(hostile)
        assert page.evaluate("window.stolen") is None
        [queued] = queued_in(directory)
        assert (queued.author, queued.proposal.changes) == ("ada", {"lr": 0.00123})

        add(directory, Proposal(changes={"lr": 0.002}, reason=""), "from a terminal")
        expect(row).to_have_count(2)
        row.first.locator("button").click()
        expect(row).to_have_count(1)
        assert [one.author for one in queued_in(directory)] == ["from a terminal"]

        append(journal, EventRow(at="", event="stopped", why="the disk is full"))
        expect(page.locator("#trouble")).to_contain_text("the disk is full")

        write_campaign(tmp_path / "d", simulated(9))
        page.goto(f"{server.url}#c")
        page.reload()
        expect(page.locator("#other option")).to_have_count(2, timeout=60_000)
        page.locator("#other").select_option("d")
        expect(page.locator("#differences tr").last).to_contain_text("compare", timeout=60_000)

        with server.client() as client:
            assert client.get("/api/campaigns/c/diff/nothing").status_code == 404
            path, body = "/api/campaigns/c/queue", {"changes": {"lr": 0.003}}
            for status, headers, content in (
                (403, {"Origin": "http://elsewhere.example"}, json.dumps(body)),
                (403, {"Sec-Fetch-Site": "cross-site"}, json.dumps(body)),
                (413, {}, json.dumps({**body, "reason": "x" * 5000})),
                (422, {}, json.dumps({**body, "more": 1})),
                (409, {}, json.dumps({"changes": {"no_such_knob": 1}})),
            ):
                sent = {"Content-Type": "application/json", **headers}
                assert client.post(path, content=content, headers=sent).status_code == status
            assert client.delete(f"{path}/nothing").status_code == 409
        assert len(queued_in(directory)) == 1
