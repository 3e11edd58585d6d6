"""A report's files are complete and self-contained, and never interpret others' texts as markup."""

import base64
import errno
import hashlib
import json
import re
import resource
import signal
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.support.configs import config
from tests.support.reports import (
    HOSTILE,
    findings,
    hostile_rows,
    simulated,
    with_menu,
)
from tests.support.rows import baseline_row, campaign_row, iteration_row, ok, trial
from trainer.spec import CurvePoint, Measure
from trajectory.report.canvas import PALETTE
from trajectory.report.figures.progress_points import MAX_LINKED
from trajectory.report.findings import Findings
from trajectory.report.report import _replace_all, render, write_report
from trajectory.report.wording import shown
from trajectory.rows import Row


class Elements(HTMLParser):
    """Parser that collects a page's elements with their attributes, and the text of scripts and
    styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[dict[str, str | None], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self.raw.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in {"script", "style"}:
            attributes, text = self.raw[-1]
            self.raw[-1] = (attributes, text + data)


def curve(_: str) -> list[CurvePoint]:
    return [
        CurvePoint(step=i, tokens=i, loss=6 - i / 20, lr=1e-3, grad_norm=1, elapsed_s=i)
        for i in range(1, 61)
    ]


def written(folder: Path, rows: list[Row]) -> tuple[Findings, str]:
    found = findings(folder / "campaign", rows, curve)
    report = write_report(found, folder / "report")
    return found, report.page.read_text("utf-8")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("hostile"), list(hostile_rows()))[1]


def unpacked(page: str) -> list[dict[str, Any]]:
    """Return the details of all iterations, unpacked as the page's script does it."""
    blocks = [text for attributes, text in Elements(page).raw if attributes.get("class")]
    return [one for block in blocks for one in json.loads(zlib.decompress(base64.b64decode(block)))]


@pytest.mark.parametrize("iterations", [0, 1])
def test_a_campaign_that_has_just_begun_has_a_report(tmp_path: Path, iterations: int) -> None:
    found, page = written(tmp_path, simulated(iterations))
    assert len(found.iterations) == iterations
    assert "The best configs" in page


def test_a_campaign_without_a_measurement_has_one_too(tmp_path: Path) -> None:
    _, page = written(tmp_path, list(with_menu([campaign_row()])))
    assert "Nothing has been measured yet." in page
    assert "<figure" not in page


def test_the_policy_allows_the_one_script_and_style_sheet_by_hash_and_nothing_else(
    hostile: str,
) -> None:
    elements = Elements(hostile)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    running = [text for attributes, text in elements.raw if not attributes]
    assert len(running) == 2, "one style sheet and one script; the rest is data"
    for text in running:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_is_fetched_and_nothing_is_styled_or_run_inline(hostile: str) -> None:
    tags = {tag for tag, _ in Elements(hostile).found}
    assert not tags & {"img", "link", "iframe", "object", "embed", "base", "image", "foreignobject"}
    for tag, attributes in Elements(hostile).found:
        assert "style" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)


def test_others_texts_add_no_element_to_the_page(hostile: str, tmp_path: Path) -> None:
    tame = ["a tame text"] * len(HOSTILE)
    _, page = written(tmp_path, list(hostile_rows([f"{t} {i}" for i, t in enumerate(tame)])))
    ignored = {"svg", "g", "path", "use", "text", "defs", "clippath", "rect", "a", "title"}

    def outline(text: str) -> list[str]:
        tags = [tag for tag, _ in Elements(text).found]
        return [tag for tag in tags if tag not in ignored]

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
    elements = Elements(hostile).found
    inks = {ink.name for ink in PALETTE}
    assert {"ink", "muted"} <= set(re.findall(r'="var\(--(.*?)\)"', hostile)) <= inks
    ids = [attributes["id"] for _, attributes in elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attributes in elements:
        if tag == "use":
            assert (attributes.get("href") or "").removeprefix("#") in ids
        for name in ("fill", "stroke"):
            value = attributes.get(name)
            assert value is None or not value.startswith("#"), (tag, attributes)


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
    files = {tmp_path / f"{number}.svg": b"new" for number in range(5)}
    for path in files:
        path.write_bytes(b"old")
    page = tmp_path / "report.html"
    page.write_bytes(b"old page")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError) as caught:
            _replace_all({**files, page: b"x" * (1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG
    assert {path.read_bytes() for path in files} == {b"old"}
    assert page.read_bytes() == b"old page"
    assert set(tmp_path.iterdir()) == {page, *files}, "nothing lies beside them"
    _replace_all({**files, page: b"new page"})
    assert {path.read_bytes() for path in files} == {b"new"}
    assert page.read_bytes() == b"new page"
