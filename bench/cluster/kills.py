"""Run a campaign on a Ray cluster of this machine, and kill its processes at random.

A directory keeps the campaign and a line for each kill. A benchmark that is stopped resumes there,
and the same seed gives the same remaining kills.
"""

import hashlib
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoresearch.values import Frozen
from bench.cluster.driver import Driver, keep_output
from bench.cluster.victims import Victims
from bench.figure import Figure
from tests.support.accounts import history_faults, rest_faults, row_faults
from tests.support.campaigns import Toy
from tests.support.ray_clusters import LocalCluster, local_cluster
from tests.support.waiting import wait_until

LANES_A_NODE = 1
NODES = ("node1", "node2", "node3", "node4")
KEPT = Path("bench-cluster")
MANY = 1_000_000
"""More iterations than any campaign reaches."""
_GONE_WITHIN_S = 30.0
"""How long a trial may outlive its driver, as docs/cluster.md promises."""
_BLIND = 0.3
"""Share of kills at a random moment. The others wait for a row, so that they hit running trials and
not only the driver's start."""
_WEIGHTS = {"lane's actor": 2, "fork server": 2, "trial's process": 2}
"""Weights of kinds that are drawn more often. The other kinds each need a start of Ray or of the
campaign, which takes half a minute on a busy machine of two cores."""


class Kill(Frozen):
    """One kill, and the observations after it."""

    number: int
    kind: str
    hit: bool
    """Whether there was a process to kill."""
    rows: int
    end: int
    """Number of bytes in the journal's whole lines."""
    sha256: str
    """The hash of those bytes."""
    gone_s: float | None
    """How long the last process of a trial outlived the driver; None if the driver lives."""
    stopped_itself: int
    """How often the campaign stopped with a message since the kill before."""
    faults: tuple[str, ...]


def run(kills: int = 100, kept: Path = KEPT, seed: int = 0) -> list[Figure]:
    """Kill ``kills`` processes of one campaign; recorded kills count and are not done again."""
    kept = kept.resolve()
    kept.mkdir(parents=True, exist_ok=True)
    with local_cluster(*NODES) as cluster:
        night = _Night(kept, cluster, len(NODES) * LANES_A_NODE)
        try:
            night.begin()
            while len(night.done) < kills:
                night.kill(random.Random(f"{seed} {len(night.done)}"))
            return [*_figures(night.done), *night.rest()]
        finally:
            night.leave()


class _Night:
    """A campaign that is restarted after each end."""

    def __init__(self, kept: Path, cluster: LocalCluster, lanes: int) -> None:
        self._kept = kept / "kills.jsonl"
        self._toy = Toy(kept / "home")
        self._cluster = cluster
        self._driver = Driver(self._toy, cluster.address, lanes)
        self._victims = Victims(cluster, self._driver)
        lines = self._kept.read_text().splitlines() if self._kept.exists() else []
        self.done = [Kill.model_validate_json(line) for line in lines]

    def begin(self) -> None:
        """Wait until the first iteration is journaled, since a killed baseline ends a campaign."""
        self._driver.go_on(MANY)
        wait_until(lambda: any(row["kind"] == "iteration" for row in self._rows()))

    def kill(self, chance: random.Random) -> None:
        """Kill one process, and write a line about it."""
        stopped = self._driver.stopped_itself
        self._driver.go_on(MANY)
        self._wait_for_a_moment(chance)
        kinds = list(self._victims.kinds)
        [kind] = chance.choices(kinds, [_WEIGHTS.get(kind, 1) for kind in kinds])
        hit = self._victims.kinds[kind](chance)
        gone_s = None if self._driver.runs else self._all_gone()
        self._write(kind, hit, gone_s, self._driver.stopped_itself - stopped)

    def rest(self) -> list[Figure]:
        """Let the campaign reach its last iteration, and check all of it."""
        self._driver.end(signal.SIGINT)
        last = max((row["iter"] for row in self._rows() if row["kind"] == "iteration"), default=0)
        tries = 0
        while self._driver.finish(last + 20):  # beyond all iterations in flight
            tries += 1
            if tries == 3:
                break
        self._all_gone()
        faults = [*rest_faults(self._toy.campaign), *self._driver.faults]
        note = f"at iteration {last + 20}" + "".join(f"; {fault}" for fault in faults)
        return [Figure("faults of the campaign at rest", len(faults), "", "0", not faults, note)]

    def leave(self) -> None:
        """Kill the driver."""
        self._driver.end(signal.SIGKILL)

    # --- how ------------------------------------------------------------------------------------

    @property
    def _journal(self) -> Path:
        return self._toy.campaign / "trajectory.jsonl"

    def _rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._whole().splitlines()]

    def _whole(self) -> bytes:
        """Return the journal's whole lines, without a partly written one."""
        data = self._journal.read_bytes() if self._journal.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def _wait_for_a_moment(self, chance: random.Random) -> None:
        if chance.random() >= _BLIND:
            before = len(self._whole())
            give_up_at = time.monotonic() + 240
            while len(self._whole()) == before and time.monotonic() < give_up_at:
                if not self._driver.runs:
                    self._driver.go_on(MANY)
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 2.0))
        else:
            time.sleep(chance.uniform(0.0, 8.0))

    def _all_gone(self) -> float:
        """Wait until no process of a trial is left; return the seconds, up to the limit."""
        began = time.monotonic()
        while self._cluster.trial_processes():
            passed_s = time.monotonic() - began
            if passed_s > _GONE_WITHIN_S:
                self._driver.faults.append(f"a trial lives {_GONE_WITHIN_S:g} s after its driver")
                return passed_s
            time.sleep(0.1)
        return time.monotonic() - began

    def _write(self, kind: str, hit: bool, gone_s: float | None, stopped: int) -> None:
        data = self._whole()
        faults = [*self._driver.faults, *self._faults(data)]
        self._driver.faults.clear()
        one = Kill(
            number=len(self.done),
            kind=kind,
            hit=hit,
            rows=data.count(b"\n"),
            end=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            gone_s=gone_s,
            stopped_itself=stopped,
            faults=tuple(faults),
        )
        if faults:
            keep_output(self._toy.home, self._kept.with_name(f"said-{one.number}"))
        self.done.append(one)
        with self._kept.open("a") as file:
            file.write(one.model_dump_json() + "\n")
        print(f"{one.number + 1}: {kind}, {one.rows} rows, {faults or 'no fault'}", flush=True)

    def _faults(self, data: bytes) -> Iterator[str]:
        before = self.done[-1] if self.done else None
        if before and hashlib.sha256(data[: before.end]).hexdigest() != before.sha256:
            yield "rows that were there are not"
        yield from row_faults(json.loads(line) for line in data.splitlines())
        if data.count(b"\n") > 1:  # else its tables may not exist yet
            yield from history_faults(self._toy.campaign)


def _figures(done: list[Kill]) -> list[Figure]:
    hits = Counter(kill.kind for kill in done if kill.hit)
    kinds = ", ".join(f"{many} {kind}" for kind, many in hits.items())
    stopped = sum(kill.stopped_itself for kill in done)
    faults = [f"kill {kill.number + 1}: {fault}" for kill in done for fault in kill.faults]
    gone_s = [kill.gone_s for kill in done if kill.gone_s is not None and kill.hit]
    return [
        Figure("kills", sum(hits.values()), "", note=kinds),
        Figure("faults after a kill", len(faults), "", "0", not faults, "; ".join(faults)),
        Figure(
            "a trial's process after its driver, at most",
            max(gone_s, default=0.0),
            "s",
            f"<= {_GONE_WITHIN_S:g}",
            max(gone_s, default=0.0) <= _GONE_WITHIN_S,
            f"{len(gone_s)} ends of drivers",
        ),
        Figure("the campaign stopped with a sentence", stopped, "times"),
        Figure("rows", done[-1].rows if done else 0, ""),
    ]
