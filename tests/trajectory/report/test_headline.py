"""The head of a report is what the campaign found, and each of its best configs is described."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from agent.commands.campaign_view import CampaignView
from agent.menu.files import menu_of
from tests.support.places import ROOT
from tests.support.present import known
from trajectory.report.figures.time_and_energy import time_and_energy
from trajectory.report.report import render
from trajectory.report.wording import signed

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


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> CampaignView:
    """Return a finished campaign whose best config was confirmed, without a meter of energy."""
    directory = tmp_path_factory.mktemp("runs") / "night"
    directory.mkdir()
    shutil.copy(ROOT / "docs" / "night" / "trajectory.jsonl", directory)
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
    assert heading.text == found.finding
    assert title.text.split(" · ") == [found.finding, "night"]
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
