"""A report's files are complete and self-contained, and never interpret others' texts as markup."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
import resource
import shutil
import signal
import xml.etree.ElementTree as ET
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agent.commands.campaign_view import CampaignView
from agent.menu.files import menu_of
from tests.support.browser import chromium
from tests.support.configs import config
from tests.support.curves import points
from tests.support.places import NIGHT
from tests.support.present import known
from tests.support.reports import HOSTILE, findings, hostile_rows, simulated, stress_rows, with_menu
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial
from trainer.schema import CurvePoint, Measure
from trajectory.report.canvas import PALETTE
from trajectory.report.figures import SECTIONS
from trajectory.report.figures.progress_points import MAX_LINKED
from trajectory.report.figures.time_and_energy import time_and_energy
from trajectory.report.findings import Findings
from trajectory.report.report import _replace_all, figures_of, render, write_report
from trajectory.report.wording import shown, signed
from trajectory.rows import Row

VOID = {"meta", "br", "input", "img", "link", "hr"}


@dataclass
class Element:
    """Element of a page with all text inside it."""

    tag: str
    attributes: dict[str, str | None]
    within: tuple[Element, ...]
    text: str = ""

    @property
    def classes(self) -> set[str]:
        return set((self.attributes.get("class") or "").split())

    def is_in(self, ancestor: Element) -> bool:
        return any(one is ancestor for one in self.within)


@dataclass
class Parsed(HTMLParser):
    """All elements of a page, in order."""

    page: str
    found: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(Element(tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(self.found[-1])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data

    def of(self, tag: str, *, within: Element | None = None, cls: str = "") -> list[Element]:
        return [
            one
            for one in self.found
            if one.tag == tag
            and (within is None or one.is_in(within))
            and (not cls or cls in one.classes)
        ]


def curve(_: str) -> list[CurvePoint]:
    return points([6 - step / 20 for step in range(1, 61)])


def written(folder: Path, rows: list[Row]) -> tuple[Findings, str]:
    found = findings(folder / "campaign", rows, curve)
    report = write_report(found, folder / "report")
    return found, report.page.read_text("utf-8")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("hostile"), list(hostile_rows()))[1]


def unpacked(page: str) -> list[dict[str, Any]]:
    """Return the details of all iterations, unpacked as the page's script does it."""
    blocks = [
        zlib.decompress(base64.b64decode(one.text))
        for one in Parsed(page).of("script", cls="details")
    ]
    return [one for block in blocks for one in json.loads(block)]


SCROLLS = """() => {
    const drawing = document.querySelector(".drawing");
    const hint = getComputedStyle(drawing, "::before").content;
    return [drawing.scrollWidth > drawing.clientWidth, !["none", "normal"].includes(hint)];
}"""


def test_a_chart_wider_than_the_screen_says_that_it_scrolls(tmp_path: Path) -> None:
    written(tmp_path, simulated(12))
    page = tmp_path / "report" / "report.html"
    with chromium() as browser:
        view = browser.new_page()
        view.goto(page.as_uri())
        for width in (320, 390, 560, 600, 700, 1200):
            view.set_viewport_size({"width": width, "height": 800})
            scrolls, says_so = view.evaluate(SCROLLS)
            assert scrolls == says_so, width


@pytest.mark.parametrize("iterations", [0, 1])
def test_a_campaign_that_has_just_begun_has_a_report(tmp_path: Path, iterations: int) -> None:
    found, page = written(tmp_path, simulated(iterations))
    assert len(found.iterations) == iterations
    assert "The best configs" in page


def test_a_campaign_without_a_measurement_has_one_too(tmp_path: Path) -> None:
    _, page = written(tmp_path, list(with_menu([campaign_row()])))
    assert "Nothing has been measured yet." in page
    assert "<figure" not in page


def test_the_policy_allows_one_script_and_style_sheet_by_hash(hostile: str) -> None:
    page = Parsed(hostile)
    (policy,) = (
        one.attributes["content"] or ""
        for one in page.of("meta")
        if one.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    running = [
        one.text for tag in ("style", "script") for one in page.of(tag) if not one.attributes
    ]
    assert len(running) == 2, "one style sheet and one script; the rest is data"
    for text in running:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_is_fetched_and_nothing_is_styled_or_run_inline(hostile: str) -> None:
    elements = Parsed(hostile).found
    tags = {one.tag for one in elements}
    assert not tags & {"img", "link", "iframe", "object", "embed", "base", "image", "foreignobject"}
    for one in elements:
        assert not [name for name in one.attributes if name.startswith(("on", "style"))], one.tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (one.attributes.get(name) or "#").startswith("#"), one


def test_others_texts_add_no_element_to_the_page(hostile: str, tmp_path: Path) -> None:
    tame = ["a tame text"] * len(HOSTILE)
    _, page = written(tmp_path, list(hostile_rows([f"{t} {i}" for i, t in enumerate(tame)])))
    ignored = {"svg", "g", "path", "use", "text", "defs", "clippath", "rect", "a", "title"}

    def outline(text: str) -> list[str]:
        return [one.tag for one in Parsed(text).found if one.tag not in ignored]

    assert outline(hostile) == outline(page)


def test_what_a_row_opens_to_is_what_was_received(hostile: str) -> None:
    details = unpacked(hostile)
    assert len(details) == len(HOSTILE) + 1
    for text, one in zip(HOSTILE, details, strict=False):
        assert one["reason"] == shown(text)
        assert one["replies"][0]["raw"] == shown(text)
        assert one["decision"] == shown(text)
        assert {"name": shown(text), "before": "–"}.items() <= one["changes"][1].items()
    assert details[-1]["verdict"] == f"refused by the rail range: {HOSTILE[2]}"


def test_changes_are_told_against_the_reference(tmp_path: Path) -> None:
    rows = list(with_menu([campaign_row(), baseline_row(1, 4.3, 0), baseline_row(2, 4.2, 1)]))
    candidate = config(lr=0.002, d_ff=256)
    rows.append(
        iteration_row(1, candidate, (trial(9, candidate, 0, ok(4.1)),), changes={"lr": 0.002})
    )
    (details,) = unpacked(render(findings(tmp_path, rows, curve), (), (), datetime.now(UTC)))
    assert details["changes"] == [
        {"name": "lr", "before": "0.001", "after": "0.002"},
        {"name": "d_ff", "before": "512", "after": "256"},
    ]
    assert details["trials"][0]["result"] == "4.1000"


@pytest.mark.slow
def test_a_long_campaign_is_packed_in_parts_and_drawn_without_a_mark_a_row(tmp_path: Path) -> None:
    found, page = written(tmp_path, simulated(MAX_LINKED + 150))
    assert len(found.details) == 8
    assert len(unpacked(page)) == MAX_LINKED + 150
    kept = len(found.kept)
    assert page.count('<a href="#i') <= 3 * kept + 20


def test_figures_are_in_the_pages_colors_and_their_ids_are_the_pages_own(hostile: str) -> None:
    elements = Parsed(hostile).found
    inks = {ink.name for ink in PALETTE}
    assert {"ink", "muted"} <= set(re.findall(r'="var\(--(.*?)\)"', hostile)) <= inks
    ids = [one.attributes["id"] for one in elements if one.attributes.get("id")]
    assert len(ids) == len(set(ids))
    for one in elements:
        if one.tag == "use":
            assert (one.attributes.get("href") or "").removeprefix("#") in ids
        for name in ("fill", "stroke"):
            assert not (one.attributes.get(name) or "").startswith("#"), one


def test_no_score_is_shown_negated_and_a_gain_is_positive(tmp_path: Path) -> None:
    found = findings(tmp_path, simulated(30))
    scoring = Measure(unit="accuracy", direction="maximise")
    # The measured 2.5, negated: as if the command had printed minus 2.5.
    about = replace(found.about, scoring=scoring)
    page = render(replace(found, about=about), (), (), datetime.now(UTC))
    best = found.best[0].entry
    assert f"<b>\N{MINUS SIGN}{best.objective:.4f}</b>" in page
    assert best.delta_vs_baseline is not None
    assert f"<b>+{-best.delta_vs_baseline:.4f}</b>" in page or best.delta_vs_baseline >= 0
    assert "positive is better" in page
    assert "negative is better" not in page
    assert not re.search("minus accuracy", page)


def test_a_disk_that_fills_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    files = {f"{number}.svg": b"new" for number in range(5)}
    paths = {tmp_path / name for name in files}
    for path in paths:
        path.write_bytes(b"old")
    page = tmp_path / "report.html"
    page.write_bytes(b"old page")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            _replace_all(tmp_path, {**files, page.name: b"x" * (1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG
    assert {path.read_bytes() for path in paths} == {b"old"}
    assert page.read_bytes() == b"old page"
    assert set(tmp_path.iterdir()) == {page, *paths}, "nothing lies beside them"
    _replace_all(tmp_path, {**files, page.name: b"new page"})
    assert {path.read_bytes() for path in paths} == {b"new"}
    assert page.read_bytes() == b"new page"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> CampaignView:
    """Return a finished campaign whose best config was confirmed, without a meter of energy."""
    directory = tmp_path_factory.mktemp("runs") / "night"
    directory.mkdir()
    shutil.copy(NIGHT / "trajectory.jsonl", directory)
    return CampaignView(directory)


def test_the_head_is_the_finding_and_its_first_tile_the_confirmed_gain(night: CampaignView) -> None:
    found = night.findings()
    gain = known(known(found.confirmed).chosen.headline)
    figure = known(time_and_energy(found))
    assert figure.values.energy_wh is None
    metered_usage = replace(figure.values, energy_wh=2500.0, cost_usd=1.0)
    pages = [
        Parsed(render(found, (one,), (), datetime.now(UTC)))
        for one in (figure, replace(figure, values=metered_usage))
    ]
    page = pages[0]
    (title,), (heading,) = page.of("title"), page.of("h1")
    assert heading.text == found.headline.title
    assert title.text.split(" · ") == [found.headline.title, "night"]
    assert f"{abs(gain.delta):.4f}" in heading.text

    tiles = page.of("div", cls="tile")
    assert "good" in tiles[0].classes
    (value,) = page.of("strong", within=tiles[0])
    assert value.text == signed(gain.delta)
    unmetered, metered = ({one.text for one in each.of("dt")} for each in pages)
    assert metered - unmetered == {"energy"}


def test_each_of_the_best_names_what_differs_from_the_first(night: CampaignView) -> None:
    page = Parsed(render(night.findings(), (), (), datetime.now(UTC)))
    (section,) = (one for one in page.of("section") if one.attributes["id"] == "best")
    named = [
        {
            page.of("bdi", within=change)[0].text
            for change in page.of("span", within=body, cls="change")
        }
        for body in page.of("tbody", within=section)
    ]
    first, *others = (entry.config.model_dump() for entry in night.top(10))
    assert len(named) == 1 + len(others) == 10
    for names, values in zip(named[1:], others, strict=True):
        assert names == {name for name, value in values.items() if value != first[name]}
        assert names
    baseline = menu_of(known(night.row)).baseline.model_dump()
    assert named[0] == {name for name, value in first.items() if value != baseline[name]}


def test_the_page_and_the_files_have_the_same_figures(tmp_path: Path) -> None:
    found = findings(tmp_path, stress_rows(simulated(60)), curve)
    names = [figure.name for figure in figures_of(found)]
    assert len(names) == 8
    report = write_report(found, tmp_path / "report")
    page = report.page.read_text("utf-8")
    assert re.findall('<figure id="(.*?)">', page) == names
    for suffix in (".png", ".svg"):
        assert [path.stem for path in report.figures if path.suffix == suffix] == names
    for path in report.figures:
        if path.suffix == ".svg":
            assert ET.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        else:
            assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    left = {path.name for path in (tmp_path / "report").rglob("*") if path.is_file()}
    assert left == {"report.html", *(path.name for path in report.figures)}
    sections = re.findall('<section id="(.*?)">', page)
    assert sections == [section.id for section in SECTIONS]
    assert re.findall('<a href="#([a-z]+)">', page)[: len(sections)] == sections
