"""What a report on a long campaign costs: the command on 10,000 rows, and the page's first load.

The journal is simulated: rows as a real campaign writes them, every knob of the default menu turned
now and then. The command is timed as a person waits for it, its own start included, with the peak
of its resident memory. The first load is that of a fresh profile in headless Chromium, from the
navigation to the ``load`` event, after which the table's first rows and all figures are there; and
to the first paint with content. It is left out where there is no Chromium or no playwright.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import psutil

from agent.menu.files import load_menu
from agent.menu.proxy_menu import ProxyMenu
from autoresearch.errors import SpecError
from bench.figure import Figure
from tests.support.rows import Simulator, write_journal
from trainer.spec import Config, gpt
from trajectory.rows import CampaignRow, IterationRow, Row

ROWS = 10_000
LOADS = 5
GOAL_COMMAND_S = 10.0
GOAL_MEMORY_MB = 300.0
GOAL_LOAD_S = 1.0
COMMAND = Path(sys.executable).with_name("autoresearch")


def run() -> list[Figure]:
    """The command's time and memory, the page's size, and its first load."""
    with tempfile.TemporaryDirectory() as scratch:
        campaign = Path(scratch) / "campaign"
        campaign.mkdir()
        journal = campaign / "trajectory.jsonl"
        write_journal(journal, _rows())
        seconds, peak_mb = _report(campaign)
        page = campaign / "report" / "report.html"
        size_mb = page.stat().st_size / 1e6
        figures = [
            Figure(
                f"report, {ROWS:,} rows",
                seconds,
                "s",
                f"< {GOAL_COMMAND_S:g} s",
                seconds < GOAL_COMMAND_S,
                f"the command, start included; a journal of {journal.stat().st_size / 1e6:.1f} MB",
            ),
            Figure(
                f"peak memory of report, {ROWS:,} rows",
                peak_mb,
                "MB",
                f"< {GOAL_MEMORY_MB:g} MB",
                peak_mb < GOAL_MEMORY_MB,
                "resident",
            ),
            Figure(f"size of the page, {ROWS:,} rows", size_mb, "MB"),
        ]
        return figures + _first_load(page)


def _rows() -> Iterator[Row]:
    """The simulator's, with the default menu and all of its knobs in play."""
    menu = load_menu("cpu-tiny")
    rng = Random(0)
    known: dict[str, Config] = {}
    for row in islice(Simulator(seed=1).rows(ROWS), ROWS):
        if isinstance(row, CampaignRow):
            yield row.model_copy(update={"menu_toml": menu.toml})
        elif isinstance(row, IterationRow) and row.config is not None:
            yield _with_config(row, known.setdefault(row.config.config_hash, _draw(menu, rng)))
        else:
            yield row


def _draw(menu: ProxyMenu, rng: Random) -> Config:
    """The baseline with three knobs drawn anew."""
    while True:
        names = rng.sample(list(menu.knobs), 3)
        try:
            values = {name: menu.domains[name].draw(rng) for name in names}
            return gpt(menu.apply(menu.baseline, values))
        except SpecError:
            continue


def _with_config(row: IterationRow, config: Config) -> IterationRow:
    name = config.config_hash
    trials = tuple(trial.model_copy(update={"config_hash": name}) for trial in row.trials)
    return row.model_copy(update={"config": config, "config_hash": name, "trials": trials})


def _report(campaign: Path) -> tuple[float, float]:
    """Seconds, and the peak of resident memory in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [COMMAND, "report", f"--campaign={campaign}"], stdout=subprocess.DEVNULL
    )
    watched = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.01)
    if process.wait() != 0:
        raise RuntimeError(f"the report failed with exit status {process.returncode}")
    return time.perf_counter() - began, peak / 1e6


_TIMES = """() => {
  const [entry] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const rows = document.querySelectorAll("#iterations tr.row").length;
  return {load: entry.loadEventEnd, paint: paint ? paint.startTime : 0, rows};
}"""


def _first_load(page: Path) -> list[Figure]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        return [Figure("first load of the page", 0.0, "s", note="not measured: no Chromium here")]
    seen: list[dict[str, Any]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(LOADS):
            context = browser.new_context()
            tab = context.new_page()
            tab.goto(page.as_uri(), wait_until="load")
            tab.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
            seen.append(tab.evaluate(_TIMES))
            context.close()
        browser.close()
    load_s = sorted(one["load"] for one in seen)[LOADS // 2] / 1e3
    paint_s = sorted(one["paint"] for one in seen)[LOADS // 2] / 1e3
    note = f"median of {LOADS} fresh profiles in headless Chromium, {seen[0]['rows']} rows drawn"
    return [
        Figure(
            f"first load of the page, {ROWS:,} rows",
            load_s,
            "s",
            f"< {GOAL_LOAD_S:g} s",
            load_s < GOAL_LOAD_S,
            note,
        ),
        Figure("its first paint with content", paint_s, "s", note="the same loads"),
    ]
