"""Entries below a campaign's directory that are no plain files of this user are not opened."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import beneath, campaign_files

DECOY = "DECOY-PRIVATE-TEXT\n"


@pytest.fixture(params=["openat2", "part by part"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Open with the kernel's own resolution, and as on a kernel that lacks it."""
    if request.param != "openat2":

        def missing(*_: object) -> int:
            raise OSError(errno.ENOSYS, "no such system call")

        monkeypatch.setattr(beneath, "_openat2", missing)
    return str(request.param)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    (folder / "secret").write_text(DECOY)
    return folder


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    directory = tmp_path / "campaign"
    directory.mkdir()
    return directory


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def owned_by_another(path: Path) -> None:
    path.write_text(DECOY)
    os.chown(path, 4321, 4321)


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, outside: path.symlink_to(outside / "secret"),
    "relative link": lambda path, _: path.symlink_to("../outside/secret"),
    "link to a sibling": lambda path, _: path.symlink_to("other"),
    "dangling link": lambda path, outside: path.symlink_to(outside / "new"),
    "link loop": lambda path, _: path.symlink_to(path.name),
    "link to a folder": lambda path, outside: path.symlink_to(outside),
    "link to /dev/zero": lambda path, _: path.symlink_to("/dev/zero"),
    "magic link": lambda path, _: path.symlink_to("/proc/self/fd/0"),
    "hard link": lambda path, outside: os.link(outside / "secret", path),
    "pipe": lambda path, _: os.mkfifo(path),
    "socket": lambda path, _: unix_socket(path),
    "folder": lambda path, _: path.mkdir(),
}
AS_ROOT: dict[str, Callable[[Path, Path], object]] = {
    "zeros": lambda path, _: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),
    "disk": lambda path, _: os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(7, 250)),
    "foreign owner": lambda path, _: owned_by_another(path),
}


@pytest.mark.parametrize("name", ["file", "folder/file"])
@pytest.mark.parametrize("kind", [*PLANTS, *AS_ROOT])
def test_only_a_plain_file_of_ones_own_is_opened(
    kind: str, name: str, campaign: Path, outside: Path, how: str
) -> None:
    if kind in AS_ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    (campaign / "folder").mkdir()
    (campaign / "folder" / "other").write_text("")
    (campaign / "other").write_text("")
    (PLANTS | AS_ROOT)[kind](campaign / name, outside)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
        with pytest.raises(OSError, match=r"."):
            campaign_files.open_file(campaign, name, flags)
    with pytest.raises(OSError, match=r"."):
        campaign_files.check_database(campaign, name)
    assert {path.name for path in outside.iterdir()} == {"secret", "inner"}
    assert (outside / "secret").read_text() == DECOY


@pytest.mark.parametrize("name", ["folder/secret", "../outside/secret", "folder/../../outside/x"])
def test_no_folder_on_the_way_leads_out(name: str, campaign: Path, outside: Path, how: str) -> None:
    (campaign / "folder").symlink_to(outside)
    with pytest.raises(OSError, match=r"."):
        campaign_files.read_file(campaign, name)
    with pytest.raises(OSError, match=r"."):
        campaign_files.replace_file(campaign, name, "x")
    with pytest.raises(OSError, match=r"."):
        campaign_files.remove(campaign, name)
    with pytest.raises(OSError, match=r"."):
        campaign_files.make_folder(campaign, "folder")
    with pytest.raises(OSError, match=r"."):
        campaign_files.make_folder(campaign, "folder/inner")
    assert campaign_files.names(campaign, "folder") == []
    assert campaign_files.status_of(campaign, "folder/secret") is None
    assert not campaign_files.has_folder(campaign, "folder")
    assert (outside / "secret").read_text() == DECOY


def test_a_link_is_replaced_renamed_and_removed_itself(
    campaign: Path, outside: Path, how: str
) -> None:
    for name in ("a", "b", "c"):
        (campaign / name).symlink_to(outside / "secret")
    campaign_files.replace_file(campaign, "a", "new", durable=True)
    campaign_files.rename(campaign, "b", "d")
    assert campaign_files.remove(campaign, "c")
    assert not campaign_files.remove(campaign, "c")
    assert (campaign / "a").read_text() == "new"
    assert not (campaign / "a").is_symlink()
    assert campaign_files.names(campaign) == ["a", "d"]
    assert (outside / "secret").read_text() == DECOY


def test_the_directory_itself_may_be_reached_through_a_link(
    campaign: Path, tmp_path: Path, how: str
) -> None:
    (tmp_path / "short").symlink_to(campaign)
    short = tmp_path / "short"
    campaign_files.make_folder(short, "folder/below")
    campaign_files.replace_file(short, "folder/below/file", b"text")
    assert campaign_files.read_file(short, "folder/below/file", 4) == b"text"
    assert campaign_files.has_file(short, "folder/below/file")
    assert campaign_files.names(short, "folder") == ["below"]


def test_a_file_larger_than_the_limit_is_not_read(campaign: Path) -> None:
    with (campaign / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=r"."):
        campaign_files.read_file(campaign, "huge", 1000)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_of_the_directorys_owner_is_read_and_not_written(campaign: Path) -> None:
    (campaign / "file").write_text("theirs")
    for path in (campaign, campaign / "file"):
        os.chown(path, 4321, 4321)
    assert campaign_files.read_file(campaign, "file") == b"theirs"
    with pytest.raises(PermissionError):
        campaign_files.open_file(campaign, "file", os.O_WRONLY)


def test_a_failed_replacement_leaves_nothing(campaign: Path) -> None:
    (campaign / "file").write_text("old")
    with pytest.raises(RuntimeError), campaign_files.replacing(campaign, "file") as file:
        file.write(b"new")
        raise RuntimeError
    assert [path.name for path in campaign.iterdir()] == ["file"]
    assert (campaign / "file").read_text() == "old"


def test_what_a_kill_left_is_swept(campaign: Path) -> None:
    left = ".a.0123456789abcdef", ".b.0123456789abcdef"
    for name in (*left, ".a", "a", ".a.0123"):
        (campaign / name).write_text("")
    campaign_files.sweep(campaign, name="a")
    assert campaign_files.names(campaign) == sorted({".a", "a", ".a.0123", left[1]})
    campaign_files.sweep(campaign)
    assert campaign_files.names(campaign) == [".a", ".a.0123", "a"]


def test_a_folder_that_trials_write_has_no_file_of_two_names(campaign: Path, outside: Path) -> None:
    campaign_files.make_shared_folder(campaign, "compiled")
    (campaign / "compiled" / "inner").mkdir()
    (campaign / "compiled" / "inner" / "link").symlink_to(outside)
    campaign_files.make_shared_folder(campaign, "compiled")
    os.link(outside / "secret", campaign / "compiled" / "inner" / "file")
    with pytest.raises(OSError, match=r"."):
        campaign_files.make_shared_folder(campaign, "compiled")
