"""Compare the numbers of a confirmation with the truth in simulated worlds.

The worlds are those of :mod:`bench.judge_worlds`, but each text favors some configs. A change's
gain on one text differs from its gain on all text by an sd of TEXT_SD. So a search, which scores
one text a hundred times, also fits that text. Campaigns run as in :mod:`bench.judge_honesty`. Then
the product's own plan and statistics confirm the best three and the baseline on six fresh seeds and
a fresh text. Each campaign is confirmed many times, with new seeds and a new text each time.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from bench.figure import Figure
from bench.judge_honesty import RUNS, share
from bench.judge_nights import RESULT, Night, nights
from bench.judge_worlds import World, worlds
from trainer.schema import AnyConfig, ScoredText, TextPart, TextScore, TrialOk
from trajectory.confirmation import FreshRuns, gains
from trajectory.confirmed import FreshGain
from trajectory.ranking import top
from trajectory.rows import Role, Rules, TrialRecord

CAMPAIGNS = 60
AGAIN = 40
"""The number of confirmations of each campaign."""
FINALISTS, SEEDS, PARTS = 3, 6, 16
FIRST_FRESH = 10_000
TEXT_SD = 0.01
"""Sd of a change's extra gain on one text, in bits per byte: 0.04 on each of PARTS parts. In the
demo's campaign the parts of 300 kB show 0.002 between two of the best, and 0.03 between them and
the baseline, from which they differ in ten knobs."""
PART_SD = 0.02
"""Sd of one run on one part, besides the effect of its seed on all parts; also from the demo."""
INFLATION_GOAL, FALSE_GOAL, AT_ONCE_GOAL = 0.5, 5, (93, 100)
TEXT = ScoredText(
    name="fresh", path="/", sha256="0" * 64, parts=(TextPart(tokens=2, bytes=1),) * PARTS
)

_SCORE = TextScore(sha256=TEXT.sha256, val_bpb=1, val_bytes=1, val_tokens=1, parts_bpb=(1,))


@dataclass(slots=True)
class TextNight(Night):
    """A campaign whose one text favors some configs."""

    parents: dict[str, str] = field(default_factory=dict)
    """The parent of each config."""
    favours: dict[str, float] = field(default_factory=dict)
    """Each config's score on the search's text minus its score on all text."""

    def run(self, config: AnyConfig, seed: int, role: Role) -> TrialRecord:
        """Return one simulated trial, scored on the search's text."""
        name = config.config_hash
        record = Night.run(self, config, seed, role)
        if name not in self.favours:
            parent = self.evidence.incumbent_hash
            inherited = self.favours[parent] if parent is not None else 0.0
            self.favours[name] = inherited + (self.rng.gauss(0, TEXT_SD) if parent else 0.0)
            self.parents[name] = parent or name
        score = (record.objective or 0.0) + self.favours[name]
        return record.model_copy(update={"result": RESULT.model_copy(update={"val_bpb": score})})


@dataclass(frozen=True, slots=True)
class Reported:
    """One confirmation and the truth; gains are positive, in bits per byte."""

    true: float
    """The true gain of the search's choice."""
    claimed: float
    same_text: float
    """The gain on fresh seeds and the search's own text."""
    confirmed: float
    picked: float
    """The excess of the claimed over the true gain, for the best finalist by these runs."""
    holds: bool
    """Whether the 95 % interval of the search's choice holds."""
    plain_hold: bool
    """Whether every finalist's 95 % interval holds at once."""
    all_hold: bool
    """Whether every finalist's wider interval holds at once."""
    pick_holds: bool
    """Whether the plain interval of the best by these runs holds."""
    false: bool
    """Whether the search's choice is called better than the baseline but is not."""


def confirmed(night: TextNight) -> Iterator[Reported]:
    """Yield confirmations of a finished campaign, each on fresh seeds and a fresh text."""
    ranked = top(night.evidence, FINALISTS + 1)
    finalists = [entry for entry in ranked if entry.delta_vs_baseline is not None][:FINALISTS]
    names = [entry.config_hash for entry in finalists]
    truths = [night.delta(name) for name in names]
    claimed = -(finalists[0].delta_vs_baseline or 0.0)
    for number in range(AGAIN):
        rng = random.Random(f"{number} {names[0]}")
        baseline, *runs = _fresh(night, [night.evidence.baseline_hash or "", *names], number, rng)
        found = [gains(one, baseline, [TEXT], finalists=len(runs)) for one in runs]
        fresh = [pair[1] for pair in found]
        pick = min(range(len(fresh)), key=lambda i: fresh[i].delta)
        yield Reported(
            true=-truths[0],
            claimed=claimed,
            same_text=-found[0][0].delta,
            confirmed=-fresh[0].delta,
            picked=truths[pick] - fresh[pick].delta,
            holds=_holds(fresh[0], truths[0]),
            plain_hold=all(map(_holds, fresh, truths)),
            all_hold=all(map(_holds_widely, fresh, truths)),
            pick_holds=_holds(fresh[pick], truths[pick]),
            false=fresh[0].hi < 0 <= truths[0],
        )


def _holds(gain: FreshGain, truth: float) -> bool:
    return gain.lo <= truth <= gain.hi


def _holds_widely(gain: FreshGain, truth: float) -> bool:
    return gain.all_lo <= truth <= gain.all_hi


def _fresh(
    night: TextNight, names: Sequence[str], number: int, rng: random.Random
) -> list[FreshRuns]:
    """Return runs of these configs on SEEDS unused seeds, scored on a new text."""
    seeds = range(FIRST_FRESH + SEEDS * number, FIRST_FRESH + SEEDS * (number + 1))
    favours: dict[str, list[float]] = {}
    for name in names:
        _draw_favours(night, name, favours, rng)
    return [
        FreshRuns({seed: _scored(night, name, seed, favours[name], rng) for seed in seeds})
        for name in names
    ]


def _draw_favours(
    night: TextNight, name: str, favours: dict[str, list[float]], rng: random.Random
) -> list[float]:
    """Draw a config's extra score on each part of the new text: its parent's, plus a new part."""
    if name not in favours:
        parent = night.parents[name]
        if parent == name:
            favours[name] = [0.0] * PARTS
        else:
            inherited = _draw_favours(night, parent, favours, rng)
            sd = TEXT_SD * math.sqrt(PARTS)
            favours[name] = [value + rng.gauss(0, sd) for value in inherited]
    return favours[name]


def _scored(
    night: TextNight, name: str, seed: int, favours: Sequence[float], rng: random.Random
) -> TrialOk:
    score = night.world.score(night.recipes[name], seed, rng)
    parts = tuple(score + favour + rng.gauss(0, PART_SD) for favour in favours)
    text = _SCORE.model_copy(update={"parts_bpb": parts})
    return RESULT.model_copy(update={"val_bpb": score + night.favours[name], "texts": (text,)})


def run() -> list[Figure]:
    """Return all figures, world by world."""
    return [figure for world in worlds().values() for figure in _world(world)]


def _world(world: World) -> Iterator[Figure]:
    ended = nights(TextNight, world, Rules(), CAMPAIGNS, lambda night: night.runs >= RUNS)
    seen = [one for night in ended for one in confirmed(night)]
    name, note = world.name, f"{CAMPAIGNS} simulated campaigns, each confirmed {AGAIN} times"
    true = fmean(one.true for one in seen)
    yield Figure(f"true gain of the search's choice ({name})", true, "bpb", note=note)
    for what, values in (
        ("claimed by the search", [one.claimed for one in seen]),
        ("on fresh seeds and the same text", [one.same_text for one in seen]),
        ("confirmed", [one.confirmed for one in seen]),
        ("the best of three by confirmation", [one.true + one.picked for one in seen]),
    ):
        yield _too_much(f"{what}, too much ({name})", fmean(values) - true, true, what)
    yield share(f"the choice's 95 % interval holds ({name})", (one.holds for one in seen))
    at_once = (one.all_hold for one in seen)
    yield share(f"all three wider ones hold at once ({name})", at_once, AT_ONCE_GOAL)
    yield Figure(
        f"all three plain ones would at once ({name})", 100 * fmean(o.plain_hold for o in seen), "%"
    )
    yield Figure(
        f"the plain one of the best of three would ({name})",
        100 * fmean(o.pick_holds for o in seen),
        "%",
    )
    percent = 100 * fmean(one.false for one in seen)
    goal = f"at most {FALSE_GOAL} %"
    yield Figure(f"confirmed and not so ({name})", percent, "%", goal, percent <= FALSE_GOAL)


def _too_much(name: str, over: float, true: float, what: str) -> Figure:
    """Return an excess in percent of the true gain; if that is tiny, in thousandths of a bit."""
    if true < TEXT_SD:
        return Figure(name, 1000 * over, "mbpb")
    percent = 100 * over / true
    if what != "confirmed":
        return Figure(name, percent, "%")
    goal = f"at most {INFLATION_GOAL} %"
    return Figure(name, percent, "%", goal, abs(percent) <= INFLATION_GOAL)
