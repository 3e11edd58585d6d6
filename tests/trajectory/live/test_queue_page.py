"""Check queue and comparison on the page: in a real Chromium, and against other sites."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.trajectory.live.server import append, serving, shows, simulated, write_campaign
from trajectory.proposals import Proposal
from trajectory.queue import add, queued_in
from trajectory.rows import EventRow


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
