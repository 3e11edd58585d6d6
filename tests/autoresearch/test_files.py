"""Check that a file is replaced completely or not at all.

This holds when the writer is killed, refused, or competes with another writer.
"""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import campaign_files
from autoresearch.errors import MachineryError
from autoresearch.files import naming_full_disk, replace_file, replacing, writing, writing_to
from tests.support.places import ROOT

MEBIBYTE = 1 << 20
REPLACE_FOR_EVER = """
import sys
from pathlib import Path
from autoresearch import campaign_files
from autoresearch.files import replace_file
while True:
    for letter in sys.argv[2]:
        replace_file(Path(sys.argv[1]), letter * (1 << 20))
"""
STOP_HALF_WAY = """
import sys, time
from pathlib import Path
from autoresearch import campaign_files
from autoresearch.files import replacing
with replacing(Path(sys.argv[1]), durable=True) as file:
    file.write(b"new")
    file.flush()
    print("half", flush=True)
    time.sleep(60)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def in_a_child(act: Callable[[], None]) -> str:
    """Return the error that ``act`` raises in a child process, or an empty string."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
        except (OSError, MachineryError) as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("durable", [False, True])
def test_the_content_is_the_new_one_and_nothing_else_is_left(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "campaign.toml"
    for content in ("old", "größer", b"\x00bytes"):
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [path]


def test_where_it_fails_the_old_content_stands(tmp_path: Path) -> None:
    path = tmp_path / "full"
    path.mkdir()
    with pytest.raises(OSError):
        replace_file(path, "new")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "x", "new")


def test_who_may_read_it_is_for_the_umask_to_say(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        replace_file(tmp_path / "x", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_an_exception_while_it_is_written_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half of it")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_half_way_leaves_the_old_and_nothing_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with start(STOP_HALF_WAY, path) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        writer.kill()
    assert writer.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (half,) = set(tmp_path.iterdir()) - {path}
    assert (half.read_text(), half.name[:3]) == ("new", ".x.")
    replace_file(path, "newer")
    assert path.read_text() == "newer"
    campaign_files.sweep(tmp_path, name=path.name)
    assert set(tmp_path.iterdir()) == {path}


def test_a_kill_at_any_moment_leaves_one_of_the_two_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    whole = {letter * MEBIBYTE for letter in "ab"}
    for pause_s in (0.0, 0.001, 0.003, 0.007, 0.013):
        with start(REPLACE_FOR_EVER, path, "ab") as writer:
            while not path.exists():
                time.sleep(0.001)
            time.sleep(pause_s)
            writer.kill()
        assert path.read_text() in whole
        path.unlink()


def test_two_who_replace_it_at_once_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "x"
    replace_file(path, "0" * MEBIBYTE)
    seen = set()
    with start(REPLACE_FOR_EVER, path, "ab") as one, start(REPLACE_FOR_EVER, path, "cd") as other:
        try:
            while not (seen & set("ab") and seen & set("cd")):
                text = path.read_text()
                assert text == text[0] * MEBIBYTE
                seen.add(text[0])
            assert (one.poll(), other.poll()) == (None, None), "neither has come to grief"
        finally:
            one.kill()
            other.kill()
    assert seen & set("ab")
    assert seen & set("cd")


def test_what_lies_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "x").symlink_to(tmp_path / "outside")
    replace_file(tmp_path / "x", "new")
    assert (tmp_path / "outside").read_text() == "kept"
    assert not (tmp_path / "x").is_symlink()


def test_a_file_that_does_not_fit_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def act() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with writing(path, instead="write less"):
            replace_file(path, "n" * MEBIBYTE, durable=True)

    said = in_a_child(act)
    assert said == f"cannot write {path}: File too large; free some space, or write less"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk_leaves_the_old(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this root may not mount")
    try:
        path = tmp_path / "x"
        path.write_text("old")
        with pytest.raises(MachineryError) as refused, writing_to(tmp_path):
            replace_file(path, "n" * MEBIBYTE)
        assert isinstance(refused.value.__cause__, OSError)
        assert refused.value.__cause__.errno == errno.ENOSPC
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_directory_that_is_closed_leaves_the_old_and_says_what_to_do(tmp_path: Path) -> None:
    place = tmp_path / "closed"
    place.mkdir()
    (place / "x").write_text("old")
    place.chmod(0o555)

    def act() -> None:
        os.chdir(place)
        if os.geteuid() == 0:  # root may open every directory
            os.seteuid(65534)
        with writing("x", instead="name another"):
            replace_file(Path("x"), "new")

    said = in_a_child(act)
    place.chmod(0o755)
    assert said == "cannot write x: Permission denied; make it writable, or name another"
    assert (place / "x").read_text() == "old"
    assert list(place.iterdir()) == [place / "x"]


def test_a_full_disk_is_named_and_one_with_room_is_not(tmp_path: Path) -> None:
    for directory, names in ((Path("/proc/self"), True), (tmp_path, False)):
        with pytest.raises(MachineryError) as refused, naming_full_disk(directory):
            raise MachineryError("a trial could not be run")
        assert ("mounted at /proc," in str(refused.value)) is names
