"""All searches in all worlds, a night of each before the next of any.

So a verdict that was stopped is a smaller one of the same kind: whatever rounds are whole are told,
and more of them make its errors smaller.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from autoresearch.errors import CampaignError, SettingsError
from bench.simulator.comparison import FIRST_SEED, KeptNight, Mean, NightStore, Plan
from bench.simulator.night import Night
from bench.simulator.searches import SEARCHES, Search
from bench.simulator.world import World
from bench.simulator.worlds import Sources, worlds

AGAINST = "uniform"
MILESTONES = (25, 50, 100, 200)
EQUAL_TIME_AT = 100
"""Iterations of uniform edits, whose training time is the one that all are told at."""
FIRST_GUESS_S = 8.0
"""Processor time of a night, before there was one."""

Cell = tuple[str, str]
"""A world's name and a search's."""


@dataclass(slots=True)
class Verdict:
    """What is compared, what of it is known, and what it takes."""

    places: Mapping[str, Sequence[World]]
    """By name: worlds that nights take in turn."""
    searches: Mapping[str, Search]
    plan: Plan
    store: NightStore
    kept_as: Mapping[str, str] = field(default_factory=dict)
    """The name that a search's nights are kept by, where it is another: of one search under several
    rules they are told apart by those."""
    _took_s: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    _variants: dict[tuple[Cell, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, who, number in self.cells():
            known = self.known(name, who, number)
            if known is not None:
                self._took_s[name, who].append(known.cpu_s)

    def cells(self) -> Iterator[tuple[str, str, int]]:
        """World, search and number of every night, round by round."""
        for number in range(self.plan.nights):
            for name, found in self.places.items():
                world = found[number % len(found)]
                for who, search in self.searches.items():
                    if search.differs_in(world):
                        yield name, who, number

    def missing(self) -> list[tuple[str, str, int]]:
        """The nights that are still to be spent, in the order in which they will be."""
        return [cell for cell in self.cells() if self.known(*cell) is None]

    def known(self, name: str, who: str, number: int) -> Night | None:
        """The night, where it was spent."""
        variant = self._variant(name, who, number)
        return self.store.get(name, self.kept_as.get(who, who), variant, FIRST_SEED + number)

    def spend(self, name: str, who: str, number: int) -> Night:
        """One night, which is kept."""
        found = self.places[name]
        spent = self.searches[who].night(
            found[number % len(found)],
            seed=FIRST_SEED + number,
            iterations=self.plan.iterations,
            rules=self.plan.rules,
            runs=self.plan.runs,
        )
        variant = self._variant(name, who, number)
        kept_as = self.kept_as.get(who, who)
        self.store.add(KeptNight(world=name, search=kept_as, variant=variant, night=spent))
        self._took_s[name, who].append(spent.cpu_s)
        return spent

    def left_s(self, missing: Sequence[tuple[str, str, int]]) -> float:
        """Processor seconds that these nights will take, as others of their kind took; of a search
        not seen yet in a world, as it took in others."""
        by_search: dict[str, list[float]] = defaultdict(list)
        for (_, who), took in self._took_s.items():
            by_search[who] += took
        every = [one for took in by_search.values() for one in took] or [FIRST_GUESS_S]
        count = Counter((name, who) for name, who, _ in missing)
        return sum(
            nights * fmean(self._took_s.get(cell) or by_search.get(cell[1]) or every)
            for cell, nights in count.items()
        )

    def told(self, name: str) -> dict[str, list[Night]]:
        """By search, the nights of a world that all of them have spent, from the first on."""
        found = self.places[name]
        who_all = [who for who, one in self.searches.items() if one.differs_in(found[0])]
        nights: dict[str, list[Night]] = {who: [] for who in who_all}
        for number in range(self.plan.nights):
            row = {who: self.known(name, who, number) for who in who_all}
            if any(night is None for night in row.values()):
                break
            for who, night in row.items():
                if night is not None:
                    nights[who].append(night)
        return nights

    def _variant(self, name: str, who: str, number: int) -> str:
        found = self.places[name]
        place = number % len(found)
        key = ((name, who), place)
        if key not in self._variants:
            self._variants[key] = self.plan.variant(found[place], self.searches[who])
        return self._variants[key]


def places(
    names: Sequence[str], sources: Sources, note: Callable[[str], None]
) -> dict[str, list[World]]:
    """The worlds that can be had; of the others a note says why not.

    :raises SettingsError: where there is none of a name, or none at all.
    """
    found = {}
    for name in names:
        try:
            found[name] = worlds(name, sources)
        except CampaignError as error:
            note(f"{name} is left out: {error}")
        except SettingsError as error:
            if str(error).startswith("there is no world"):
                raise
            note(f"{name} is left out: {error}")
    if not found:
        raise SettingsError("no world is left to search in; name checkouts with --published")
    return found


def asked(names: Sequence[str] | None) -> dict[str, Search]:
    """Those of these names, uniform edits first; without names all that are no mere detail of
    another and whose ask is within the limits.

    :raises SettingsError: where there is none of a name.
    """
    for name in names or ():
        if name not in SEARCHES:
            raise SettingsError(
                f"there is no search {name!r}; `python -m bench.simulator searches --list` has them"
            )
    chosen = names or [
        name for name, one in SEARCHES.items() if one.within_limits and not one.by_name_only
    ]
    return {name: SEARCHES[name] for name in dict.fromkeys([AGAINST, *chosen])}


def spend_missing(verdict: Verdict, hours: float | None, note: Callable[[str], None]) -> None:
    """The nights that are missing, round by round, and after each a line of how far it is.

    :param hours: of processor time, after which no further night is begun; None: until all are.
    """
    missing, busy_s = verdict.missing(), 0.0
    every = sum(1 for _ in verdict.cells())
    note(f"{every - len(missing)} of {every} nights are there; {_hours(verdict.left_s(missing))}")
    while missing and (hours is None or busy_s < 3600 * hours):
        name, who, number = missing.pop(0)
        spent = verdict.spend(name, who, number)
        busy_s += spent.cpu_s
        note(
            f"{every - len(missing)} of {every}: night {number} of {who} in {spent.world}, regret "
            f"{1000 * (spent.stages[-1].truth - spent.best):.2f}, {spent.runs} runs, "
            f"{spent.cpu_s:.1f} s; {_hours(verdict.left_s(missing))}"
        )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} CPU-hours left"


def markdown(verdict: Verdict, name: str) -> str:
    """The table of one world: regret in thousandths, ± standard error, and paired differences."""
    nights = verdict.told(name)
    count = len(nights[AGAINST])
    if not count:
        return f"{name}: no round is whole yet"
    milestones = [one for one in MILESTONES if one <= verdict.plan.iterations]
    milestones = milestones or [verdict.plan.iterations]
    last, at = milestones[-1], min(EQUAL_TIME_AT, milestones[-1])
    equal_s = [_time_of(one, at) for one in nights[AGAINST]]
    heads = [*(str(one) for one in milestones), f"less uniform's at {at}"]
    heads += [f"less uniform's at {last}"] if last != at else []
    heads += [f"at the time of {at} uniform edits", "less uniform's then", "runs", "CPU s"]
    lines = [
        f"{name}, {count} paired night{'s' * (count != 1)}:",
        "",
        f"| search | {' | '.join(heads)} |",
        f"|{' --- |' * (len(heads) + 1)}",
    ]
    for who, mine in nights.items():
        cells = [str(Mean.of([one.regret(m) for one in mine])) for m in milestones]
        others = nights[AGAINST]
        for m in dict.fromkeys([at, last]):
            cells.append(_less(who, [one.regret(m) for one in mine], [o.regret(m) for o in others]))
        then = [one.regret_at_s(s) for one, s in zip(mine, equal_s, strict=True)]
        theirs = [one.regret_at_s(s) for one, s in zip(others, equal_s, strict=True)]
        cells += [str(Mean.of(then)), _less(who, then, theirs)]
        cells += [f"{fmean(one.runs for one in mine):.0f}", f"{fmean(o.cpu_s for o in mine):.1f}"]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _less(who: str, mine: Sequence[float], others: Sequence[float]) -> str:
    """The mean of the paired differences."""
    if who == AGAINST:
        return ""
    mean = Mean.of([a - b for a, b in zip(mine, others, strict=True)])
    return f"{1000 * mean.value:+.2f} ± {1000 * mean.stderr:.2f}"


def _time_of(night: Night, iteration: int) -> float:
    """Seconds of training that it had taken after so many iterations."""
    return max(stage.train_s for stage in night.stages if stage.iteration <= iteration)
