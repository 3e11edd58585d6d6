"""Render the page in a real headless Chromium: its rows, its queue and its comparison."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.places import NIGHT
from tests.support.present import known
from tests.trajectory.live.server import (
    Server,
    append,
    last_iteration,
    rows_shown,
    serving,
    shows,
    simulated,
    write_campaign,
)
from trajectory.journal import read_rows
from trajectory.proposals import Attempt, Proposal
from trajectory.queue import add, queued_in
from trajectory.rows import ConfirmedRow, EventRow, IterationRow

JOURNAL = NIGHT / "trajectory.jsonl"

HOSTILE = (
    '<script>window.stolen = 1</script><img src=x onerror="window.stolen = 1">'
    '</pre></td><svg onload="window.stolen=1">\u2028\u202e"\'`${1}{{7*7}}'
)


@pytest.mark.slow
def test_each_new_row_appears_on_an_open_page(page: Page, tmp_path: Path) -> None:
    rows = simulated(25)
    new = [last_iteration(row) for row in rows[-5:]]
    journal = write_campaign(tmp_path / "c", rows[:-5])
    (tmp_path / "night").mkdir()
    os.utime(shutil.copy(JOURNAL, tmp_path / "night"), (1, 1))
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator("#link")).to_have_text("live")
        for row in new:
            append(journal, row)
            line = page.locator(f'#rows tr.row[data-iter="{row.iter}"]')
            expect(line).to_be_visible()
        assert rows_shown(page) == list(range(new[-1].iter, 0, -1))
        assert page.locator("#trajectory canvas").count() == 1
        ended(page, server)


def ended(page: Page, server: Server) -> None:
    """Check what the page shows of a campaign: finished, confirmed, without a
    meter of energy."""
    rows = list(read_rows(JOURNAL))
    (gain,) = (known(row.found.chosen.headline) for row in rows if isinstance(row, ConfirmedRow))
    with server.client() as client:
        (status,) = (
            one["status"] for one in client.get("/api/campaigns").json() if one["name"] == "night"
        )
    assert (status["state"], status["energy_wh"]) == ("done", None)
    card = page.locator('#board button[data-name="night"]')
    card.click()
    expect(page.locator("#name")).to_have_text("night")
    assert {"done", "confirmed"} <= set(re.split(r", | · ", page.locator("#state").inner_text()))
    assert page.title().split(" · ")[0] == status["headline"]["title"]
    assert page.locator("h2").all_inner_texts() == [status["headline"]["title"]]

    tiles = page.locator("#figures dd")
    gains = (card.locator(".keep"), tiles.first)
    believed = (card.locator("span").last, tiles.nth(1))
    assert tiles.first.get_attribute("class") == "keep"
    assert [number(one) for one in gains] == [round(gain.delta, status["digits"])] * 2
    assert [number(one) for one in believed] == [
        round(status["believed_objective"], status["digits"])
    ] * 2
    assert "energy" not in page.locator("#figures dt").all_inner_texts()
    assert "Wh" not in page.locator("#figures").inner_text()

    failed = sum(
        isinstance(one, IterationRow) and one.decision.estimate_objective is None for one in rows
    )
    shown = page.evaluate(FIGURE, ["fail", "accent"])
    assert [len(one["named"]) for one in shown] == [1, 1], "failed trials, and the baseline"
    assert f"({failed})" in shown[0]["named"][0]
    assert min(one["pixels"] for one in shown) > 0

    page.set_viewport_size({"width": 390, "height": 800})
    page.reload()
    expect(page.locator("#top tbody tr")).to_have_count(10)
    assert page.locator("#figures div").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


FIGURE = """(names) => {
    const canvas = document.querySelector("#trajectory canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const probe = document.body.appendChild(document.createElement("p"));
    const series = [...document.querySelectorAll("#trajectory .u-legend .u-series")];
    return names.map((name) => {
        probe.style.color = `var(--${name})`;
        const colour = getComputedStyle(probe).color;
        const [red, green, blue] = colour.match(/[0-9]+/g).map(Number);
        const named = series.filter((one) => {
            const marker = one.querySelector(".u-marker");
            const { borderColor, backgroundColor } = marker ? getComputedStyle(marker) : {};
            return [borderColor, backgroundColor].includes(colour);
        });
        let pixels = 0;
        for (let at = 0; at < data.length; at += 4) {
            const [r, g, b, alpha] = data.slice(at, at + 4);
            const off = Math.max(Math.abs(r - red), Math.abs(g - green), Math.abs(b - blue));
            if (alpha > 100 && off < 8) pixels++;
        }
        return { named: named.map((one) => one.textContent), pixels };
    });
}"""
"""Return which series of the legend have these colors, and how many pixels of the figure."""


def number(shown: Locator) -> float:
    """Return the first number in a text."""
    text = shown.inner_text().replace("\N{MINUS SIGN}", "-")
    return float(known(re.search(r"[-+]?[0-9]+\.[0-9]+", text))[0])


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
