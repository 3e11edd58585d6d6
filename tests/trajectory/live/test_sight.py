"""A browser lays out the page of a confirmed campaign, on a phone and on a desktop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.trajectory.live.pages import shows
from tests.trajectory.live.server import Server, serving, simulated, write_campaign
from trajectory.live.interface import Standing

NIGHT = Path(__file__).parents[3] / "docs/night/trajectory.jsonl"
REACH = """(rule) => {
    const canvas = document.querySelector("#trajectory canvas");
    const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const matches = new Function("r", "g", "b", `return ${rule}`);
    let reach = 0;
    for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] > 100 && matches(data[i], data[i + 1], data[i + 2]))
            reach = Math.max(reach, (i / 4) % width);
    return reach / width;
}"""
"""Script that returns how far to the right pixels of a color reach, as a share of the chart's
width."""
RED, GREEN = "r - g > 60", "g - r > 50"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    runs = tmp_path_factory.mktemp("runs")
    (runs / "night").mkdir()
    shutil.copy(NIGHT, runs / "night")
    os.utime(write_campaign(runs / "few", simulated(3)), (1e9, 1e9))
    with serving(runs) as server:
        yield server


@pytest.fixture(scope="module")
def night(browser: Browser, server: Server) -> Iterator[Page]:
    page = browser.new_page()
    shows(page, server)
    page.goto(f"{server.url}/#night")
    expect(page.locator("#top tbody tr")).to_have_count(10)
    yield page
    page.close()


def test_the_finding_is_first_and_the_believed_score_is_everywhere(
    night: Page, server: Server
) -> None:
    with server.client() as client:
        status = client.get("/api/campaigns/night/now").json()["summary"]["status"]
        few = client.get("/api/campaigns/few/now").json()["summary"]["status"]
    assert (status["state"], few["state"]) == ("done", "done")
    expect(night.locator("#finding")).to_have_text(status["finding"])
    gain = f"{abs(status['confirmed']['gains'][1]['delta']):.4f}"
    believed = f"{status['believed_objective']:.4f}"
    card = night.locator('#board button[data-name="night"]')
    expect(card.locator(".keep")).to_contain_text(gain)
    expect(card).to_contain_text(believed)
    expect(card).to_contain_text("confirmed")
    first, second = (night.locator("#figures div").nth(i).locator("dd") for i in (0, 1))
    expect(first).to_have_class("keep")
    expect(first).to_contain_text(gain)
    expect(second).to_contain_text(believed)
    assert status["energy_wh"] is None
    assert "kWh" not in night.locator("#figures").inner_text()
    expect(night.locator("#pause")).to_be_hidden()


def test_the_best_show_what_differs_from_the_first(night: Page, server: Server) -> None:
    with server.client() as client:
        best = [
            Standing.model_validate(one) for one in client.get("/api/campaigns/night/top").json()
        ]
    assert best[0].from_best == {}
    said = [one.config.said for one in best]
    for one, own in zip(best, said, strict=True):
        assert one.from_best == {
            name: own.get(name) for name in {**said[0], **own} if own.get(name) != said[0].get(name)
        }
    shown = night.locator("#top td.changes").all_inner_texts()
    assert all(name in shown[0] for name in best[0].difference)
    for text, one in zip(shown[1:], best[1:], strict=True):
        assert {part.split("=")[0] for part in text.split() if "=" in part} == {
            name for name, value in one.from_best.items() if value is not None
        }


def test_the_chart_shows_what_failed_and_fits_few_iterations(night: Page, server: Server) -> None:
    assert night.locator("#trajectory .u-legend .u-series").count() == 6
    assert night.evaluate(REACH, RED) > 0
    night.locator('#board button[data-name="few"]').click()
    expect(night.locator("#name")).to_have_text("few")
    expect(night.locator("#top tbody tr")).not_to_have_count(10)
    assert night.evaluate(REACH, GREEN) > 0.7
    night.locator('#board button[data-name="night"]').click()
    expect(night.locator("#top tbody tr")).to_have_count(10)


def test_on_a_phone_the_best_are_cards_and_nothing_is_cut(night: Page) -> None:
    night.set_viewport_size({"width": 390, "height": 800})
    expect(night.locator("#top thead")).to_be_hidden()
    assert night.evaluate("document.documentElement.scrollWidth") <= 390
    cells = night.locator("#top tbody tr:first-child td, #top tbody tr:nth-child(2) td").all()
    tiles = night.locator("#figures div").all()
    chart = night.locator("#trajectory canvas")
    expect(chart).to_have_js_property(
        "clientWidth", night.locator("#trajectory").evaluate("(one) => one.clientWidth - 18")
    )
    for box in (one.bounding_box() for one in (*cells, *tiles, chart)):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    last = tiles[-1].bounding_box()
    assert last is not None
    assert last["x"] + last["width"] > 370, "the last row of tiles is filled"
