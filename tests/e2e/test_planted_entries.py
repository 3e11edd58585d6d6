"""Every command on campaigns with planted entries: nothing outside is opened, and none hangs.

Each case is one kind of entry under one name of a campaign that somebody else made. The decoys lie
beside the campaign, where a link of a cloned repository could lead.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import httpx2
import pytest

from tests.support.campaigns import COMMAND, Toy, environment_of
from tests.support.places import ROOT
from tests.support.planted import (
    CASES,
    DECOY,
    can_be_planted,
    copy_campaign,
    decoys,
    plant,
    watched,
)
from tests.support.simulated.commands import SimulatedToy
from tests.support.untouched import Untouched
from tests.trajectory.live.server import serving

UNPAUSED = {"pause: dangling link"}
SLOW_COMMANDS = (
    ("report",),
    ("sql", "SELECT count(*) FROM trials"),
    ("confirm", "--seeds=2"),
    ("import",),
    ("export", "--to=csv"),
    ("reindex",),
)
SAMPLE = (
    *("journal: pipe", "journal: deep", "history: link", "report: link", "trials: link"),
    *("report: page is a link", "texts: link", "export: link"),
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with a campaign of two iterations."""
    home = tmp_path_factory.mktemp("begun")
    assert SimulatedToy(home).loop(2).returncode == 0
    return home


class Planted:
    """A copy of the campaign with one planted entry, and the decoys beside it."""

    def __init__(self, begun: Path, home: Path, case: str) -> None:
        home.mkdir()
        self.toy = SimulatedToy(home)
        shutil.copytree(begun / "data", home / "data")
        copy_campaign(begun, self.toy.campaign, home)
        self.outside = decoys(home, self.toy.campaign / "trajectory.jsonl")
        plant(case, self.toy.campaign, self.outside)
        self.untouched = watched(self.outside)

    def run(self, *words: str) -> None:
        """Run a command on the campaign, and check what it did."""
        place = f"--campaign={self.toy.campaign}"
        if words[0] == "import":
            ended = self.toy.run("import", str(self.toy.campaign), f"--campaign={self.toy.home}/i")
        elif words[0] == "status":
            ended = self.toy.run("status", str(self.toy.campaign.parent))
        elif words[0] == "loop":
            ended = self.toy.run(*words, place, "--no-confirm", "--set=max_runs=2")
        else:
            ended = self.toy.run(*words, place)
        self.check(ended)

    def check(self, ended: CompletedProcess[str]) -> None:
        assert ended.returncode in {0, 1, 3}, ended.stderr  # 3: at rest, says status
        said = ended.stdout + ended.stderr
        assert "Traceback" not in said
        assert DECOY not in said
        assert self.untouched.touched() == []


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder, and remove it with a program that does not recurse."""
    yield tmp_path / "home"
    subprocess.run(["rm", "-rf", tmp_path / "home"], check=True)


@pytest.fixture
def planted(begun: Path, home: Path, case: str) -> Iterator[Planted]:
    if not can_be_planted(case):
        pytest.skip("needs root")
    planted = Planted(begun, home, case)
    yield planted
    planted.untouched.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
def test_quick_commands_stay_inside(planted: Planted, case: str) -> None:
    planted.run("status")
    planted.run("top")
    planted.run("propose", "lr=0.002")
    planted.run("propose", "--list")
    planted.run("space", "beta2.frozen=true")
    if case not in UNPAUSED:  # a pause is for a person to end
        planted.run("loop", "--iters=3")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in SAMPLE else (pytest.mark.slow,))
        for case in CASES
        if case not in UNPAUSED
    ],
)
def test_slow_commands_stay_inside(planted: Planted) -> None:
    for words in SLOW_COMMANDS:
        planted.run(*words)


PAGES = (
    *("now", "iterations", "iterations/1", "iterations/1/code", "top?k=3", "events", "queue"),
    "diff/healthy",
)


class Clone:
    """A folder ``runs`` with one campaign for each of some kinds of entries, and a healthy one."""

    def __init__(self, begun: Path, home: Path, cases: list[str]) -> None:
        home.mkdir()
        self.runs = home / "runs"
        self.planted = {case: self.runs / case.replace(": ", "-") for case in cases}
        for campaign in (self.runs / "healthy", *self.planted.values()):
            copy_campaign(begun, campaign, home)
        self.outside = decoys(home, self.runs / "healthy" / "trajectory.jsonl")

    def plant(self) -> Untouched:
        for case, campaign in self.planted.items():
            plant(case, campaign, self.outside)
        return watched(self.outside)


class Visitor:
    """Ask a running server for everything that it has, over HTTP."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def ask(self, method: str, path: str, **body: object) -> httpx2.Response:
        """Return the answer, which is a refusal in JSON at worst and holds nothing of a decoy."""
        answer = self._client.request(method, path, json=body or None)
        assert answer.status_code < 500 or "detail" in answer.json(), (path, answer.text)
        assert DECOY not in answer.text, path
        return answer

    def shown(self) -> set[str]:
        """Return the names of the campaigns on the board."""
        return {one["name"] for one in self.ask("GET", "/api/campaigns").json()}

    def next_poll(self, clone: Clone) -> None:
        """Wait until the server has looked for campaigns once more, and found another."""
        new = clone.runs / f"new{len(self.shown())}"
        shutil.copytree(clone.runs / "healthy", new)
        while new.name not in self.shown():
            time.sleep(0.05)

    def look_at(self, name: str, *, draws: bool) -> None:
        """Ask for all that the page shows of a campaign, and change its queue and its pause."""
        place = f"/api/campaigns/{name}"
        for page in (*PAGES, *(("report",) if draws else ())):
            self.ask("GET", f"{place}/{page}")
        queued = self.ask("POST", f"{place}/queue", changes={"lr": 0.003})
        if queued.status_code == 201:
            self.ask("DELETE", f"{place}/queue/{queued.json()['id']}")
        for wanted in (True, False):
            self.ask("PUT", f"{place}/pause", paused=wanted)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["planted", pytest.param("served", marks=pytest.mark.slow)])
def test_the_page_shows_a_healthy_campaign_beside_planted_ones(
    begun: Path, home: Path, first: str
) -> None:
    clone = Clone(begun, home, list(filter(can_be_planted, CASES)))
    with ExitStack() as stack:
        if first == "planted":
            untouched = clone.plant()
        server = stack.enter_context(serving(clone.runs))
        client = server.client(Connection="close")
        client.timeout = 60
        visitor = Visitor(stack.enter_context(client))
        visitor.next_poll(clone)
        if first == "served":
            assert visitor.shown() >= {one.name for one in clone.planted.values()}
            untouched = clone.plant()
            visitor.next_poll(clone)
        drawn = {clone.planted[case].name for case in SAMPLE}
        for path in ("/", "/static/page.js", "/healthz", "/metrics"):
            assert visitor.ask("GET", path).status_code == 200
        for name in visitor.shown():
            visitor.look_at(name, draws=first == "served" and name in drawn)
        healthy = visitor.ask("GET", "/api/campaigns/healthy/iterations").json()
        assert [one["iter"] for one in healthy] == [1, 2]
        assert visitor.ask("GET", "/api/campaigns/healthy/report").status_code == 200
        assert untouched.touched() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("runs", ["every kind of entry", "a link"])
def test_the_doctor_looks_past_planted_entries(begun: Path, home: Path, runs: str) -> None:
    clone = Clone(begun, home, list(filter(can_be_planted, CASES)))
    for name in ("matplotlibrc", "pyproject.toml", "setup.cfg", ".env", "uv.toml"):
        os.mkfifo(home / name)
    if runs == "a link":
        clone.runs.rename(home / "moved")
        clone.runs.symlink_to("outside")
        untouched = Untouched(clone.outside.iterdir())
    else:
        untouched = clone.plant()
        (clone.runs / "other").symlink_to(clone.outside)
    before = clone.outside.stat().st_mtime_ns
    toy = SimulatedToy(home)
    toy.environment["PYTHONPATH"] = str(ROOT)
    ended = Toy.run(toy, "doctor")
    assert ended.returncode in {0, 1}
    assert "Traceback" not in ended.stdout + ended.stderr
    assert untouched.touched() == []
    assert clone.outside.stat().st_mtime_ns == before


@pytest.mark.parametrize("link", ["runs", "runs/toy"])
def test_no_campaign_is_begun_behind_a_link_that_nobody_named(tmp_path: Path, link: str) -> None:
    toy = SimulatedToy(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    words = ("loop", "--menu=toy.toml", "--iters=1", "--baseline-seeds=2", "--no-confirm")
    refused = toy.run(*words)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert toy.run(*words, "--campaign=runs/toy").returncode == 0
    assert toy.run(*words).returncode == 0, "it has begun"


def test_a_report_waits_for_no_file_of_the_current_directory(begun: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "matplotlibrc")
    with subprocess.Popen(
        [COMMAND, "report", f"--campaign={begun}/runs/toy", f"--out={tmp_path}/page"],
        cwd=tmp_path,
        env=environment_of(tmp_path) | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    ) as running:
        try:
            assert running.wait(timeout=300) == 0
        finally:
            running.kill()
