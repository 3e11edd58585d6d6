"""Plant entries in a copy of a campaign, as somebody else's folder could hold them."""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from tests.support.untouched import Untouched

DECOY = "PRIVATE-DECOY"
QUEUED = "queue/20260101-000000-000000-0123abcd.json"


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


def abyss(path: Path, _: Path) -> None:
    """Make a tree that is deeper than a function may call itself."""
    path.mkdir()
    before = os.open(path, os.O_RDONLY)
    for _number in range(1500):
        os.mkdir("d", dir_fd=before)
        inner = os.open("d", os.O_RDONLY, dir_fd=before)
        os.close(before)
        before = inner
    os.close(before)


def wide_cell(path: Path, _: Path) -> None:
    path.write_text(
        "at,gpu_util_pct,power_w,temperature_c,mem_used_gib,throttle_reasons\n"
        + "x" * 200_000
        + "\n"
    )


def foreign_folder(path: Path, _: Path) -> None:
    path.mkdir()
    os.chown(path, 4321, 4321)


def hard_below(path: Path, outside: Path) -> None:
    path.mkdir()
    os.link(outside / "token", path / "report.html")


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
    "export: tree too deep": ("export", abyss),
    "compiled: tree too deep": ("compiled", abyss),
    "compiled: hard link below": ("compiled", hard_below),
    "report: foreign folder": ("report", foreign_folder),
    "trials: spec is a hard link": ("trials/t000901/spec.json", hard("token")),
    "trials: curve is a device": ("trials/t000901/curve.jsonl", device),
    "space: link": ("space.json", link("token")),
    "space: pipe": ("space.taken.json", pipe),
    "queue: foreign folder": ("queue", foreign_folder),
    "queue: one is a hard link": (QUEUED, hard("token")),
    "history: hard link": ("history.sqlite", hard("database")),
    "telemetry: cell too wide": ("telemetry.csv", wide_cell),
    "telemetry: pipe": ("telemetry.csv", pipe),
    "texts: foreign folder": ("texts", foreign_folder),
    "another folder too deep": ("../abyss", abyss),
}


def copy_campaign(begun: Path, campaign: Path, home: Path) -> None:
    """Copy a campaign whose files name its home."""
    shutil.copytree(begun / "runs" / "toy", campaign)
    (campaign / "history.sqlite").unlink()
    for path in campaign.rglob("*"):
        if path.is_file() and str(begun).encode() in (data := path.read_bytes()):
            path.write_bytes(data.replace(str(begun).encode(), str(home).encode()))


def plant(case: str, campaign: Path, outside: Path) -> None:
    """Put one kind of entry into a campaign, in place of what is there."""
    name, make = CASES[case]
    place = campaign / name.removeprefix("+")
    if not name.startswith("+"):
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    make(place, outside)


def decoys(home: Path, journal: Path) -> Path:
    """Make the files beside a campaign where a planted link leads, and return their folder."""
    outside = home / "outside"
    outside.mkdir()
    for name in ("bashrc", "token", "report.html", "database", "000009.json"):
        (outside / name).write_text(f"{DECOY} {name}\n")
    shutil.copy(journal, outside / "journal.jsonl")
    return outside


def watched(outside: Path) -> Untouched:
    """Watch the decoys, after every entry was planted."""
    return Untouched([outside, *outside.iterdir()])


def can_be_planted(case: str) -> bool:
    """Return whether this user may make this kind of entry."""
    return os.geteuid() == 0 or CASES[case][1] not in (device, foreign, foreign_folder)
