"""Nights of many searches in many worlds, kept as they come, and what they say together.

Nights are paired: the n-th of every search has the same seed, so it sees the same noise on the same
configs and starts from the same baseline runs. What is told of two searches is the mean of their
differences, with the standard error of that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getsourcefile
from pathlib import Path
from statistics import fmean, stdev

from pydantic import ValidationError

from autoresearch.values import Frozen
from bench.simulator.night import Night
from bench.simulator.searches import Search
from bench.simulator.world import World
from trajectory.rules import Rules

FIRST_SEED = 1000
"""Seeds below it are for tuning: a search judged on the nights it was tuned on would flatter
itself."""


class KeptNight(Frozen):
    """A night, and what it was a night of."""

    world: str
    """As it was asked for."""
    search: str
    variant: str
    """Of everything else that tells it from others: the world's fingerprint, rules, length."""
    night: Night


class NightStore:
    """``nights.jsonl``: a night a line, appended as they end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nights: dict[tuple[str, str, str, int], Night] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                kept = KeptNight.model_validate_json(line)
            except ValidationError:
                continue  # torn, or of another form: that night is spent again
            self._nights[kept.world, kept.search, kept.variant, kept.night.seed] = kept.night

    def get(self, world: str, search: str, variant: str, seed: int) -> Night | None:
        """The night, if it was."""
        return self._nights.get((world, search, variant, seed))

    def add(self, kept: KeptNight) -> None:
        """Keep it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(kept.model_dump_json().encode() + b"\n")
        self._nights[kept.world, kept.search, kept.variant, kept.night.seed] = kept.night


@dataclass(frozen=True, slots=True)
class Plan:
    """What all nights of a comparison have in common."""

    nights: int
    iterations: int
    rules: Rules | None = None
    runs: int | None = None
    """Trials that end a night, too."""

    def variant(self, world: World, search: Search) -> str:
        """What else a kept night must have been: the world and what made it, the code of those who
        propose and the search's settings, the rules, of which a kind may differ from another by its
        code alone, and its length."""
        rules = search.rules or self.rules or Rules()
        of = [
            [world.name, repr(world.best), _made_by(world)],
            [proposers_code(), {name: repr(value) for name, value in search.settings.items()}],
            [type(rules).__qualname__, rules.model_dump(mode="json")],
            [self.iterations, self.runs],
        ]
        return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


_WORLD_CODE = ("encoding.py", "noise.py", "real.py", "surrogate.py", "world.py")


def _made_by(world: World) -> str:
    """A digest of the code of worlds and of this one's, and of its noise."""
    here = Path(__file__).parent
    digest = hashlib.sha256(str(getattr(world, "noise", "")).encode())
    for path in (*(here / name for name in _WORLD_CODE), Path(getsourcefile(type(world)) or here)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def proposers_code() -> str:
    """A digest of all that proposes, the product's and what it is compared with: a night of one
    name may be another's tomorrow."""
    root = Path(__file__).parents[2]
    ours, theirs = root / "agent/proposers", root / "bench/searches"
    digest = hashlib.sha256()
    for path in sorted([*ours.glob("*.py"), *ours.glob("surrogate/*.py"), *theirs.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def spend(
    name: str,
    worlds: Sequence[World],
    search: tuple[str, Search],
    plan: Plan,
    store: NightStore,
    on_night: Callable[[Night], None] = lambda _night: None,
) -> list[Night]:
    """The nights of one search, those that are kept and those that are still to be spent.

    :param worlds: that nights take in turn.
    """
    spent = []
    for number in range(plan.nights):
        world, seed = worlds[number % len(worlds)], FIRST_SEED + number
        variant = plan.variant(world, search[1])
        known = store.get(name, search[0], variant, seed)
        if known is None:
            known = search[1].night(
                world, seed=seed, iterations=plan.iterations, rules=plan.rules, runs=plan.runs
            )
            store.add(KeptNight(world=name, search=search[0], variant=variant, night=known))
            on_night(known)
        spent.append(known)
    return spent


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its standard error."""

    value: float
    stderr: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Of one value the error is unknown."""
        spread = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        return cls(fmean(values), spread)

    def __str__(self) -> str:
        return f"{1000 * self.value:.2f} ± {1000 * self.stderr:.2f}"


def regrets(
    nights: Mapping[str, Sequence[Night]], against: str, at: Callable[[Night], float]
) -> Iterator[tuple[str, Mean, Mean]]:
    """Of each search its mean regret, and the mean of its paired differences to another's."""
    others = [at(one) for one in nights[against]]
    for name, spent in nights.items():
        mine = [at(one) for one in spent]
        pairs = zip(mine, others, strict=True)
        yield name, Mean.of(mine), Mean.of([one - other for one, other in pairs])
