"""Exchange heartbeats: each host sends its own, and records when it last saw the others'.

A process in a collective cannot notice that another is gone: if a cable is pulled, nothing arrives.
So a thread of each worker increments a count in the store every second and reads the others'
counts. The process that started the worker reads its record, and ends it.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from autoresearch.files import replace_file
from trainer.parallel.hosts.job import BEAT_S, WATCH_FILE, Hosts, Watched

__all__ = ["PrefixStore", "TCPStore"]


DONE = "done"
"""Value in place of a count: this host has finished and may leave."""


class Watch:
    """Heartbeat thread of one worker, and its record in the scratch directory."""

    def __init__(self, hosts: Hosts, scratch: Path) -> None:
        """Connect to the store as a separate client, so that its waiting blocks no other thread.

        :raises RuntimeError: torch's, if the store is unreachable.
        """
        self._hosts = hosts
        self._scratch = scratch
        self._store = TCPStore(
            hosts.addresses[0], hosts.port, timeout=timedelta(seconds=10 * BEAT_S)
        )
        self._beats = {place: b"" for place, _ in hosts.others()}
        self._seen = {place: time.monotonic() for place, _ in hosts.others()}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start once all hosts have arrived."""
        for place in range(self._hosts.count):
            self._store.compare_set(f"beat/{place}", "", "0")
        self._poll()
        self._thread.start()

    def fail(self, message: str) -> None:
        """Report a failure here to the others; they read the first report."""
        with suppress(RuntimeError):
            if self._store.add("failures", 1) == 1:
                said = {"host": self._hosts.this, "message": message}
                self._store.set("failed", json.dumps(said))

    def leave(self) -> None:
        """Report that this host has finished, and on the store's host wait for the others."""
        self._ended.set()
        self._thread.join()
        self._store.set(f"beat/{self._hosts.this}", DONE)
        if self._hosts.this == 0:
            with suppress(RuntimeError):
                while any(beat != DONE.encode() for beat in self._others_beats()):
                    self._poll()
                    time.sleep(BEAT_S / 5)

    def _run(self) -> None:
        count = 0
        while not self._ended.wait(BEAT_S):
            count += 1
            try:
                self._store.set(f"beat/{self._hosts.this}", str(count))
                self._poll()
            except RuntimeError:  # the store is gone, and what is not written any more says so
                return

    def _poll(self) -> None:
        now = time.monotonic()
        for (place, _), beat in zip(self._hosts.others(), self._others_beats(), strict=True):
            if beat != self._beats[place] or beat == DONE.encode():
                self._beats[place], self._seen[place] = beat, now
        failed = {}
        if self._store.check(["failed"]):
            said = json.loads(self._store.get("failed"))
            if said["host"] != self._hosts.this:
                failed[said["host"]] = said["message"]
        seen = Watched(at_s=now, seen_s=self._seen, failed=failed)
        replace_file(self._scratch / WATCH_FILE, seen.model_dump_json())

    def _others_beats(self) -> list[bytes]:
        return self._store.multi_get([f"beat/{place}" for place, _ in self._hosts.others()])
