"""What is asked of processes by their number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from trainer.isolation.process_tree import children, give_way, resident_bytes


def test_a_process_that_gives_way_has_less_of_a_claim_with_all_its_threads() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    code = (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        threads = [int(thread.name) for thread in Path(f"/proc/{process.pid}/task").iterdir()]
        give_way(process.pid)
        claims = {os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
        process.kill()
    assert len(threads) == 2
    assert claims == {10}
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_one_that_is_gone_gives_way_to_nobody_and_has_no_children() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    give_way(gone.pid)
    assert children(gone.pid) == []
    assert resident_bytes(gone.pid) == 0


def test_what_a_process_holds_is_what_others_say_it_holds() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "held = b'x' * (64 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert resident_bytes(process.pid) == psutil.Process(process.pid).memory_info().rss
        assert resident_bytes(process.pid) > 64 << 20
