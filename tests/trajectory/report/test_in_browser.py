"""In a real Chromium the page is legible, resists hostile texts and fetches nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import chromium
from tests.support.reports import HOSTILE, findings, hostile_rows, simulated
from trajectory.report.report import write_report
from trajectory.report.wording import shown


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as one:
        yield one


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    return write_report(findings(folder, simulated(450)), folder / "report").page


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    named = folder / "<img src=x onerror=document.title='owned'>"
    return write_report(findings(named, hostile_rows()), folder / "report").page


class Visit:
    """Loaded page, with its errors and its outgoing requests."""

    def __init__(
        self, browser: Browser, path: Path, *, scheme: str = "light", at: str = ""
    ) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page: Page = browser.new_page(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": 1280, "height": 900},
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.address = path.as_uri() + at
        self.page.goto(self.address)

    def open_all(self) -> None:
        for button in self.page.locator("#iterations tr.row button").all():
            button.click()
        self.page.wait_for_function(
            "document.querySelectorAll('#iterations .card').length =="
            " document.querySelectorAll('#iterations tr.row').length"
        )


ATTACKS = (
    "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
    "document.body.innerHTML = '<img src=x>'",
    "document.body.append(Object.assign(document.createElement('script'), {text: 'x()'}))",
)


def test_hostile_texts_stay_texts_and_run_nothing(browser: Browser, hostile_page: Path) -> None:
    visit = Visit(browser, hostile_page)
    title = visit.page.title()
    visit.open_all()
    assert visit.complaints == []
    assert visit.page.title() == title
    assert "owned" in title, "the campaign's own name is hostile here, and the title only shows it"
    assert visit.requests == [visit.address]
    cards = visit.page.locator("#iterations .card")
    for i, text in enumerate(HOSTILE):
        received = cards.nth(i).locator("p.foreign").first.text_content()
        assert received == shown(text)
        assert cards.nth(i).locator("pre.foreign").text_content() == shown(text)
    for tag in ("img", "iframe", "base", "object", "main script"):
        assert visit.page.locator(tag).count() == 0, tag
    for attack in ATTACKS:
        tried = f"try {{ {attack}; return 'ran' }} catch {{ return 'stopped' }}"
        assert visit.page.evaluate(f"(() => {{ {tried} }})()") == "stopped", attack
    refused: list[str | None] = []
    visit.page.on("requestfailed", lambda request: refused.append(request.failure))
    image = "const image = new Image(); image.src = 'https://example.com/x.png';"
    visit.page.evaluate(f"{image} document.body.append(image)")
    fetched = visit.page.evaluate(
        "fetch('https://example.com/').then(() => 'fetched', () => 'stopped')"
    )
    assert fetched == "stopped"
    assert set(refused) == {"csp"}


@pytest.mark.slow
def test_rows_come_as_wanted_and_sort_and_filter(browser: Browser, long_page: Path) -> None:
    visit = Visit(browser, long_page)
    page, rows = visit.page, visit.page.locator("#iterations tr.row")
    assert rows.count() == 200
    page.get_by_role("button", name="show more").click()
    assert rows.count() == 400
    score = page.locator("#iterations th", has=page.get_by_role("button", name="val_bpb"))
    score.get_by_role("button").click()
    assert score.get_attribute("aria-sort") == "ascending"
    cells = page.locator("#iterations tr.row td:nth-child(4)").all_text_contents()
    values = [float(text.split()[0]) for text in cells if text != "–"]
    assert values == sorted(values)
    score.get_by_role("button").click()
    cells = page.locator("#iterations tr.row td:nth-child(4)").all_text_contents()
    values = [float(text.split()[0]) for text in cells if text != "–"]
    assert values == sorted(values, reverse=True)
    page.locator("#outcome").select_option("keep")
    outcomes = set(page.locator("#iterations .outcome").all_text_contents())
    assert outcomes == {"kept"}
    page.locator("#words").fill("llm beta2=0.9")
    kinds = page.locator("#iterations tr.row td:nth-child(2)").all_text_contents()
    assert set(kinds) <= {"llm"}
    assert page.locator("#shown").text_content() == f"{rows.count()} of 450"
    assert visit.complaints == []
    page.reload()
    for width in (390, 1280):
        has_own_width(page, width)


def has_own_width(page: Page, width: int) -> None:
    """Check that a phone gets cards of its own width."""
    phone = width == 390
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#best thead").is_visible() is not phone
    cells = page.locator("#best td[data-head], #search .cards td, #iterations .row td").all()[:60]
    for box in (one.bounding_box() for one in cells):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    page.locator("#iterations thead").get_by_role("button", name="val_bpb").click()
    assert page.locator("#iterations th[aria-sort]").text_content() == "val_bpb"
