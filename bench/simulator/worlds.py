"""Which worlds there are: the one place that chooses."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoresearch.errors import SettingsError
from autoresearch.files import replacing
from bench.simulator.cpu_tiny import cpu_tiny
from bench.simulator.five_minutes import FILE as FIVE_MINUTES
from bench.simulator.five_minutes import five_minutes
from bench.simulator.lcbench import FILE as LCBENCH
from bench.simulator.lcbench import lcbench
from bench.simulator.made_up import MadeUpWorld
from bench.simulator.real import RealWorld
from bench.simulator.runs import RunTable
from bench.simulator.step_law import FILE as STEP_LAW
from bench.simulator.step_law import step_law
from bench.simulator.surrogate import Family
from bench.simulator.world import World
from bench.table.store import PUBLISHED

JOURNAL = Path("runs/table/trials.jsonl")
KEPT = Path("runs/simulator/worlds")
"""Fitted worlds, by what they were made of."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where runs are read from."""

    journal: Path = JOURNAL
    """Of the table's trials that are not published yet."""
    checkouts: tuple[Path, ...] = ()
    """Of published runs; see :mod:`bench.simulator.five_minutes`,
    :mod:`bench.simulator.step_law` and :mod:`bench.simulator.lcbench`."""
    kept: Path = KEPT

    def checkout(self, file: str) -> Path:
        """The one that has this file.

        :raises SettingsError: where none has.
        """
        for checkout in self.checkouts:
            if (checkout / file).is_file():
                return checkout
        raise SettingsError(
            f"no checkout of published runs has {file}; name one that does with --published"
        )


def _made_up(_: Sources) -> list[World]:
    return [MadeUpWorld()]


def _cpu_tiny(family: Family) -> Callable[[Sources], list[World]]:
    def make(sources: Sources) -> list[World]:
        made_of = [path for path in (PUBLISHED, sources.journal) if path.exists()]
        return _kept(sources, made_of, family, lambda: [cpu_tiny(sources.journal)])

    return make


def _five_minutes(family: Family) -> Callable[[Sources], list[World]]:
    def make(sources: Sources) -> list[World]:
        checkout = sources.checkout(FIVE_MINUTES)
        return _kept(sources, [checkout / FIVE_MINUTES], family, lambda: [five_minutes(checkout)])

    return make


def _step_law(sources: Sources) -> list[World]:
    checkout = sources.checkout(STEP_LAW)
    return _kept(sources, [checkout / STEP_LAW], "gp", lambda: step_law(checkout))


def _lcbench(sources: Sources) -> list[World]:
    return list(lcbench(sources.checkout(LCBENCH)))


WORLDS: dict[str, Callable[[Sources], list[World]]] = {
    "made-up": _made_up,
    "cpu-tiny:mlp": _cpu_tiny("mlp"),
    "cpu-tiny:gp": _cpu_tiny("gp"),
    "five-minutes:forest": _five_minutes("forest"),
    "five-minutes:mlp": _five_minutes("mlp"),
    "step-law": _step_law,
    "lcbench": _lcbench,
}
"""By name; of ``step-law`` there are 17 and of ``lcbench`` 34, which nights take in turn."""


def worlds(name: str, sources: Sources | None = None) -> list[World]:
    """The worlds of that name.

    :raises SettingsError: where there is none of that name, or no checkout that it is made of.
    :raises CampaignError: where the table is too small yet.
    """
    if name not in WORLDS:
        raise SettingsError(f"there is no world {name!r}; choose one of {', '.join(WORLDS)}")
    return WORLDS[name](sources or Sources())


def _kept(
    sources: Sources, made_of: Sequence[Path], family: Family, tables: Callable[[], list[RunTable]]
) -> list[World]:
    """Fitted once for the same runs and the same code: that takes a minute where a night takes
    seconds. What is read again was written here, by this code."""
    digest = hashlib.sha256(_code() + family.encode())
    for path in made_of:
        digest.update(path.read_bytes())
    place = sources.kept / f"{digest.hexdigest()[:16]}.pickle"
    if place.exists():
        found: list[World] = pickle.loads(place.read_bytes())
        return found
    made = [RealWorld(table, family) for table in tables()]
    for world in made:
        _ = world.best
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as file:
        file.write(pickle.dumps(made))
    return list(made)


@cache
def _code() -> bytes:
    """A digest of what fits worlds."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (
        "climb",
        "cpu_tiny",
        "encoding",
        "five_minutes",
        "noise",
        "real",
        "replicates",
        "runs",
        "step_law",
        "surrogate",
        "traces",
        "world",
    ):
        digest.update((here / f"{name}.py").read_bytes())
    return digest.digest()
