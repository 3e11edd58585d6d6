"""The page shows a reader everything, and updates do not disturb reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.configs import config
from tests.support.reports import hostile_rows
from tests.support.rows import baseline_row, failed, iteration_row, trial
from tests.trajectory.live.pages import last_iteration, rows_shown, shows
from tests.trajectory.live.server import append, serving, simulated, write_campaign
from trainer.spec import CurvePoint, TrialSpec
from trajectory.proposals import Proposal
from trajectory.rows import Row


def test_what_is_invisible_in_a_text_is_spelled_out(page: Page, tmp_path: Path) -> None:
    rows = simulated(5)
    row = last_iteration(rows[-1])
    told = Proposal(
        changes={"lr": "\u202egnp.exe"}, reason="zero\u200bwidth\u0007 \U000e0041 👩\u200d🔬"
    )
    write_campaign(tmp_path / "c", [*rows[:-1], row.model_copy(update={"proposal": told})])
    with serving(tmp_path) as server:
        shows(page, server)
        line = page.locator(f'#rows tr.row[data-iter="{row.iter}"]')
        expect(line.locator(".changes")).to_have_text("lr=⟨U+202E⟩gnp.exe")
        line.click()
        spelled = "zero⟨U+200B⟩width⟨U+0007⟩ ⟨U+E0041⟩ 👩\u200d🔬"
        expect(page.locator("tr.more pre").first).to_have_text(spelled)


def test_why_the_pause_file_cannot_be_changed_stays_on_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    rows = simulated(8)
    journal = write_campaign(tmp_path / "c", rows[:-1])
    (journal.parent / "pause").mkdir()  # not a file, so it cannot be removed
    with serving(tmp_path) as server, browser.new_context() as context:
        page = context.new_page()
        shows(page, server)
        page.locator("#pause").click()
        expect(page.locator("#trouble")).to_contain_text("cannot be changed")
        append(journal, rows[-1])
        line = page.locator(f'#rows tr.row[data-iter="{last_iteration(rows[-1]).iter}"]')
        expect(line).to_be_visible(timeout=5000)
        expect(page.locator("#trouble")).to_contain_text("cannot be changed")
        assert page.locator("#pause").inner_text() == "Resume"


def test_an_opened_row_stays_while_others_land_and_opens_once(page: Page, tmp_path: Path) -> None:
    rows = simulated(130)
    journal = write_campaign(tmp_path / "c", rows[:-1])
    last = last_iteration(rows[-1]).iter
    with serving(tmp_path) as server:
        shows(page, server)
        page.locator('#rows tr.row[data-iter="60"]').click()
        more = page.locator("#rows tr.more")
        expect(more).to_have_count(1)
        more.evaluate("(row) => { window.opened = row }")
        append(journal, rows[-1])
        expect(page.locator(f'#rows tr.row[data-iter="{last}"]')).to_be_visible(timeout=5000)
        assert rows_shown(page) == list(range(last, last - 100, -1))
        page.locator("#older").click()
        assert rows_shown(page) == list(range(last, 0, -1))
        page.locator("#board button").click()  # the campaign that is already shown
        assert page.evaluate("window.opened.isConnected")
        page.locator('#rows tr.row[data-iter="60"]').click()
        expect(more).to_have_count(0)


def test_the_address_names_the_campaign(page: Page, tmp_path: Path) -> None:
    write_campaign(tmp_path / "one two", simulated(6))
    write_campaign(tmp_path / "three", simulated(9, seed=5))
    with serving(tmp_path) as server:
        for fragment, name in (("one%20two", "one two"), ("three", "three")):
            page.goto(f"{server.url}/#{fragment}")
            expect(page.locator("#name")).to_have_text(name, timeout=20_000)
        page.goto(f"{server.url}/#%")
        page.reload()
        expect(page.locator("#rows tbody tr.row").first).to_be_visible(timeout=20_000)


def test_a_campaign_whose_trials_all_fail_is_told_in_words(page: Page, tmp_path: Path) -> None:
    nothing = trial(1, config(), 0, failed(), "baseline")
    rows: list[Row] = [simulated(0)[0], baseline_row(1, 1.0, 0)]
    rows[1] = rows[1].model_copy(update={"trial": nothing})
    bad = iteration_row(1, config(lr=0.01), (trial(2, config(lr=0.01), 0, failed()),))
    write_campaign(tmp_path / "c", [*rows, bad])
    with serving(tmp_path) as server:
        shows(page, server)
        expect(page.locator("#trajectory")).to_have_text("Nothing has been measured yet.")
        expect(page.locator("#curve")).to_have_text("No trial is running.")
        expect(page.locator("#rows td.failed")).to_have_text("nonfinite")


@pytest.mark.parametrize("width", [390, 1280])
def test_what_a_row_opens_to_fits_the_window(page: Page, tmp_path: Path, width: int) -> None:
    write_campaign(tmp_path / "c", list(hostile_rows()))
    page.set_viewport_size({"width": width, "height": 800})
    with serving(tmp_path) as server:
        shows(page, server)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for line in page.locator("#rows tr.row").all():
            line.click()
        expect(page.locator("#rows tr.more")).to_have_count(page.locator("#rows tr.row").count())
        for text in page.locator("#rows tr.more pre, #rows tr.more h4").all():
            box = text.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= width


def test_without_a_device_the_curve_has_the_whole_width_at_once(page: Page, tmp_path: Path) -> None:
    directory = write_campaign(tmp_path / "c", simulated(6)).parent
    trial_dir = directory / "trials" / "t000999"
    trial_dir.mkdir(parents=True)
    spec = TrialSpec(
        trial_id="t000999", config=config(), seed=0, corpus_dir="/", corpus_sha256="0" * 64
    )
    (trial_dir / "spec.json").write_text(spec.model_dump_json())
    point = CurvePoint(step=1, tokens=1, loss=6, lr=1e-3, grad_norm=1, elapsed_s=1)
    (trial_dir / "curve.jsonl").write_text(point.model_dump_json() + "\n")
    with serving(tmp_path) as server:
        shows(page, server)
        chart = page.locator("#curve .uplot")
        expect(chart).to_be_visible(timeout=5000)
        wide, all_of_it = chart.bounding_box(), page.locator("#curve").bounding_box()
        assert wide is not None
        assert all_of_it is not None
        assert wide["width"] > 0.95 * all_of_it["width"]
