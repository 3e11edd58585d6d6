"""A campaign has one writer, and the error names it to a second one."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.errors import CampaignLockedError, MachineryError
from autoresearch.layout import LOCK_FILE
from tests.support.places import ROOT
from trajectory.lock import CampaignLock

HOLDER = """
import sys
from pathlib import Path
from trajectory.lock import CampaignLock
with CampaignLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(directory: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_the_second_is_told_who_holds_it_and_gets_it_after_a_kill(tmp_path: Path) -> None:
    with start_holder(tmp_path) as holder:
        with pytest.raises(CampaignLockedError) as caught, CampaignLock(tmp_path):
            pass
        for said in (str(tmp_path), f"process {holder.pid}", socket.gethostname()):
            assert said in str(caught.value)
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert str(holder.pid) in (tmp_path / LOCK_FILE).read_text()  # the stale entry blocks nobody
    with CampaignLock(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK_FILE).read_text()


def test_a_refused_attempt_leaves_the_holder_its_lock_and_its_name(tmp_path: Path) -> None:
    with CampaignLock(tmp_path):
        before = (tmp_path / LOCK_FILE).read_text()
        for _ in range(2):
            with pytest.raises(CampaignLockedError):
                CampaignLock(tmp_path).acquire()
        assert (tmp_path / LOCK_FILE).read_text() == before


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    with CampaignLock(tmp_path):
        child = subprocess.Popen(["sleep", "30"], close_fds=False)
    try:
        with CampaignLock(tmp_path):
            pass
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("info", [b"", b"{", b"\xff\0", b'{"pid": "me"}'])
def test_a_holder_not_named_yet_still_holds_it(tmp_path: Path, info: bytes) -> None:
    with CampaignLock(tmp_path):
        (tmp_path / LOCK_FILE).write_bytes(info)
        with pytest.raises(CampaignLockedError):
            CampaignLock(tmp_path).acquire()


def test_no_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MachineryError):
        CampaignLock(tmp_path / "nowhere").acquire()


def test_releasing_what_is_not_held_does_nothing(tmp_path: Path) -> None:
    lock = CampaignLock(tmp_path)
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()
    CampaignLock(tmp_path).acquire()
