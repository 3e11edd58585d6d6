"""Every command on campaigns with planted entries: nothing outside is changed or shown, none hangs.

Each case is one kind of entry under one name of a campaign that somebody else made. The decoys lie
beside the campaign, where a link of a cloned repository could lead.
"""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.campaigns import Toy
from tests.support.simulated.commands import SimulatedToy
from trajectory.live.board import Board

DECOY = "PRIVATE-DECOY"
QUEUED = "queue/20260101-000000-000000-0123abcd.json"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def link(target: str) -> Callable[[Path, Path], object]:
    """Plant a link to a decoy, relative as a repository would hold it."""
    return lambda path, outside: path.symlink_to(os.path.relpath(outside / target, path.parent))


def absolute(target: str) -> Callable[[Path, Path], object]:
    return lambda path, _: path.symlink_to(target)


def hard(target: str) -> Callable[[Path, Path], object]:
    return lambda path, outside: os.link(outside / target, path)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/{path.name}")  # its own path may be too long
        os.close(here)


def folder(path: Path, _: Path) -> None:
    (path / "inner").mkdir(parents=True)


def loop(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def deep(path: Path, _: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"kind":' * 200_000 + b"0" + b"}" * 200_000 + b"\n" + b"[" * 10**6 + b"\n")


def endless_line(path: Path, _: Path) -> None:
    with path.open("ab") as file:
        file.truncate(file.tell() + (1 << 31))


def foreign(path: Path, _: Path) -> None:
    path.write_text(f"{DECOY}\n")
    os.chown(path, 4321, 4321)


def device(path: Path, _: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


CASES: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "lock: link": ("campaign.lock", link("bashrc")),
    "lock: hard link": ("campaign.lock", hard("bashrc")),
    "lock: pipe": ("campaign.lock", pipe),
    "lock: device": ("campaign.lock", device),
    "lock: folder": ("campaign.lock", folder),
    "lock: dangling link": ("campaign.lock", link("made")),
    "lock: foreign owner": ("campaign.lock", foreign),
    "journal: link to a secret": ("trajectory.jsonl", link("token")),
    "journal: link to a journal": ("trajectory.jsonl", link("journal.jsonl")),
    "journal: hard link": ("trajectory.jsonl", hard("token")),
    "journal: pipe": ("trajectory.jsonl", pipe),
    "journal: socket": ("trajectory.jsonl", unix_socket),
    "journal: zeros": ("trajectory.jsonl", absolute("/dev/zero")),
    "journal: device": ("trajectory.jsonl", device),
    "journal: terminal": ("trajectory.jsonl", absolute("/dev/tty")),
    "journal: folder": ("trajectory.jsonl", folder),
    "journal: loop": ("trajectory.jsonl", loop),
    "journal: huge": ("trajectory.jsonl", huge),
    "journal: deep": ("+trajectory.jsonl", deep),
    "journal: endless line": ("+trajectory.jsonl", endless_line),
    "journal: foreign owner": ("trajectory.jsonl", foreign),
    "settings: link": ("campaign.toml", link("token")),
    "settings: pipe": ("campaign.toml", pipe),
    "settings: huge": ("campaign.toml", huge),
    "settings: deep": ("campaign.toml", deep),
    "history: link": ("history.sqlite", link("database")),
    "history: dangling link": ("history.sqlite", link("made")),
    "history: pipe": ("history.sqlite", pipe),
    "history: log is a link": ("history.sqlite-wal", link("bashrc")),
    "report: link": ("report", link("")),
    "report: page is a link": ("report/report.html", link("bashrc")),
    "report: figures are a link": ("report/figures", link("")),
    "report: pipe": ("report", pipe),
    "trials: link": ("trials", link("")),
    "trials: orders are a link": ("trials/.specs", link("")),
    "trials: one is a link": ("trials/t000900", link("")),
    "trials: curve is a pipe": ("trials/t000001/curve.jsonl", pipe),
    "trials: spec is a link": ("trials/t000901/spec.json", link("token")),
    "trials: result is zeros": ("trials/t000901/result.json", absolute("/dev/zero")),
    "in flight: link": ("in_flight", link("")),
    "in flight: one is a pipe": ("in_flight/000009.json", pipe),
    "in flight: one is deep": ("in_flight/000009.json", deep),
    "queue: link": ("queue", link("")),
    "queue: one is a link": (QUEUED, link("token")),
    "queue: taken is a link": ("queue/taken", link("")),
    "telemetry: zeros": ("telemetry.csv", absolute("/dev/zero")),
    "telemetry: link": ("telemetry.csv", link("bashrc")),
    "imported: pipe": ("imported.jsonl", pipe),
    "imported: link": ("imported.jsonl", link("token")),
    "pause: dangling link": ("pause", link("made")),
    "prompts: link": ("prompts", link("")),
    "compiled: link": ("compiled", link("")),
    "texts: link": ("texts", link("")),
    "export: link": ("export", link("")),
}
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
        shutil.copytree(begun, home, dirs_exist_ok=True)
        self.toy = SimulatedToy(home)
        for path in self.toy.campaign.rglob("*"):
            if path.is_file() and str(begun).encode() in (data := path.read_bytes()):
                path.write_bytes(data.replace(str(begun).encode(), str(home).encode()))
        self.toy.campaign.joinpath("history.sqlite").unlink()
        self.outside = home / "outside"
        self.outside.mkdir()
        for name in ("bashrc", "token", "report.html", "database", "000009.json"):
            (self.outside / name).write_text(f"{DECOY} {name}\n")
        shutil.copy(self.toy.campaign / "trajectory.jsonl", self.outside / "journal.jsonl")
        name, plant = CASES[case]
        place = self.toy.campaign / name.removeprefix("+")
        if not name.startswith("+"):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            place.unlink(missing_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        plant(place, self.outside)
        self._before = self._seen()

    def _seen(self) -> dict[str, object]:
        return {
            str(path.relative_to(self.outside)): (
                path.read_bytes() if path.is_file() else None,
                path.stat().st_mtime_ns,
                path.stat().st_nlink,
            )
            for path in (self.outside, *self.outside.rglob("*"))
        }

    def run(self, *words: str) -> None:
        """Run a command on the campaign, and check what it did."""
        place = f"--campaign={self.toy.campaign}"
        if words[0] == "import":
            ended = self.toy.run("import", str(self.toy.campaign), f"--campaign={self.toy.home}/i")
        elif words[0] == "status":
            ended = self.toy.run("status", str(self.toy.campaign))
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
        assert self._seen() == self._before

    def serve(self) -> None:
        """Poll the campaign as the live page does, twice."""
        board = Board([self.toy.campaign.parent], ("true",))
        for _ in range(2):
            board.poll()
        for watched in board.campaigns.values():
            said = repr((watched.follower.status(), watched.error, watched.device.samples))
            assert DECOY not in said
            watched.follower.lanes()
        assert self._seen() == self._before


def needs_root(case: str) -> bool:
    return CASES[case][1] in (device, foreign)


@pytest.fixture
def planted(begun: Path, tmp_path: Path, case: str) -> Planted:
    if needs_root(case) and os.geteuid() != 0:
        pytest.skip("needs root")
    return Planted(begun, tmp_path / "home", case)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", CASES)
def test_quick_commands_stay_inside(planted: Planted, case: str) -> None:
    planted.run("status")
    planted.serve()
    planted.run("top")
    planted.run("propose", "lr=0.002")
    planted.run("propose", "--list")
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


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_doctor_looks_past_planted_campaigns(begun: Path, tmp_path: Path) -> None:
    planted = Planted(begun, tmp_path / "home", "journal: pipe")
    (planted.toy.home / "runs" / "other").symlink_to(planted.outside)
    planted.check(Toy.run(planted.toy, "doctor"))
