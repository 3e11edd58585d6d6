"""Nights of search with models of every worth, against the same nights without one.

What is told is the cost: the share of the sampler's own gain that is missing where a model takes
part, negative where it adds. Nights are paired by seed, so both see the same noise on the same
configs; an interval is of 1,000 resamples of the pairs. Time counts what a reply takes too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, Proposer, SuggestibleProposer
from agent.proposers.hybrid import MODEL_TURNS, SAMPLER_TURNS, SHARE, HybridProposer
from agent.proposers.sampler import SamplerProposer
from bench.figure import Figure
from bench.models.cost import Cost
from bench.models.policies import POLICIES
from bench.models.stand_ins import Copier, Liar, Oracle, Recorded, Repeater, StandIn, Waster
from bench.simulator.comparison import proposers_code
from bench.simulator.made_up import MadeUpWorld
from bench.simulator.night import MakeProposer, Night, night
from bench.simulator.world import World
from trajectory.evidence import Evidence
from trajectory.proposals import MODEL
from trajectory.rules import Rules

ITERATIONS = 100
NIGHTS = 40
LATENCY_S = 0.5
"""Of a reply, where a trial of the made-up world takes a second."""
WORST = 0.05
"""Of a night's gain: the most that a model may cost."""
SAID = Path(__file__).with_name("said.jsonl")
"""What SmolLM2-135M-Instruct said in simulated nights, a reply a line
(:mod:`bench.models.recording`)."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one night came to."""

    seed: int
    gain: float
    """True gain of the reference at the end, bits per byte."""
    gain_in_time: float
    """The same when as much time had gone as the sampler's whole night of this seed takes."""
    runs: int
    time_s: float
    """Simulated: of training, and of the model's replies."""
    turns: int
    """The model's."""
    kept: int
    keeps: int
    """By anybody."""


class Watched:
    """A proposer, and what it saw and took."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self.evidence = Evidence()
        self.latency_s: list[float] = []

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        self.evidence = memory.evidence
        offer = self._proposer.propose(memory)
        self.latency_s.append(sum(each.latency_s for each in offer.record.attempts))
        return offer


MakeModel = Callable[[Rails, World], StandIn]


def said() -> list[str]:
    """The recorded replies."""
    return [json.loads(line) for line in SAID.read_text("utf-8").splitlines()]


def models(latency_s: float) -> dict[str, MakeModel]:
    """By name.

    :param latency_s: that a reply takes.
    """
    made: dict[str, MakeModel] = {
        "oracle": lambda rails, world: Oracle(rails, world, latency_s=latency_s),
        "liar": lambda rails, world: Liar(rails, world, latency_s=latency_s),
        "waster": lambda rails, world: Waster(rails, world, latency_s=latency_s),
        "copier": lambda rails, world: Copier(rails, latency_s=latency_s),
        "repeater": lambda rails, world: Repeater(rails, latency_s=latency_s),
    }
    if SAID.exists():
        made["SmolLM2, recorded"] = partial(_recorded, said(), latency_s)
    return made


def _recorded(replies: Sequence[str], latency_s: float, rails: Rails, world: World) -> StandIn:
    return Recorded(rails, replies, latency_s=latency_s)


def one_night(
    world: World,
    seed: int,
    make: Callable[[Rails], SuggestibleProposer] | None,
    policy: type[HybridProposer] = HybridProposer,
    *,
    base: MakeProposer = SamplerProposer,
    time_s: float | None = None,
    iterations: int = ITERATIONS,
) -> Told:
    """A night with this model, or with the sampler alone.

    :param base: the sampler.
    :param time_s: that the sampler's night took.
    """
    watched: list[Watched] = []

    def proposer(rails: Rails) -> Proposer:
        model = make(rails) if make is not None else None
        watched.append(Watched(policy(base(rails), model)))
        return watched[0]

    done = night(world, proposer, seed=seed, iterations=iterations)
    times_s = _times(done, watched[0].latency_s)
    in_time = [
        stage.truth
        for stage, at_s in zip(done.stages, times_s, strict=True)
        if time_s is None or at_s <= time_s
    ]
    record = watched[0].evidence.track_record(MODEL)
    return Told(
        seed=seed,
        gain=done.true_gain,
        gain_in_time=done.stages[0].truth - in_time[-1],
        runs=done.runs,
        time_s=times_s[-1],
        turns=record.turns,
        kept=record.kept,
        keeps=done.keeps,
    )


def _times(done: Night, latency_s: Sequence[float]) -> list[float]:
    """When each stage was reached; nothing is proposed before the baseline."""
    waited, times = 0.0, []
    for stage, more in zip(done.stages, [0.0, *latency_s], strict=True):
        waited += more
        times.append(stage.train_s + waited)
    return times


# --- many of them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """A model, and how it is given turns."""

    model: str
    """Empty: none, the sampler alone."""
    policy: str

    def __str__(self) -> str:
        return f"{self.model}, {self.policy}" if self.model else "the sampler alone"


ALONE = Arm("", next(iter(POLICIES)))


class Nights:
    """Nights of many arms in one world, kept in a file as they end, so that a run that was stopped
    goes on.

    :param kept: the file; None: in this object only.
    :param only: models by name; None: all.
    """

    def __init__(
        self,
        world: World,
        latency_s: float,
        kept: Path | None = None,
        *,
        iterations: int = ITERATIONS,
        only: Sequence[str] | None = None,
    ) -> None:
        self._world = world
        self._latency_s = latency_s
        self._iterations = iterations
        made = models(latency_s)
        self._models = {name: make for name, make in made.items() if only is None or name in only}
        self._kept = kept
        self._told: dict[tuple[Arm, int], Told] = {}
        if kept is not None and kept.exists():
            for line in kept.read_text("utf-8").splitlines():
                each = json.loads(line)
                if each["of"] == self._of:
                    arm = Arm(each["model"], each["policy"])
                    self._told[arm, each["told"]["seed"]] = Told(**each["told"])

    def arms(self, policies: Sequence[str]) -> list[Arm]:
        """Every model under these policies."""
        return [Arm(model, policy) for model in self._models for policy in policies]

    def of(self, arm: Arm, seeds: range) -> list[Told]:
        """These nights."""
        return [self._night(arm, seed) for seed in seeds]

    def _night(self, arm: Arm, seed: int) -> Told:
        told = self._told.get((arm, seed))
        if told is None:
            time_s = None if arm == ALONE else self._night(ALONE, seed).time_s
            told = one_night(
                self._world,
                seed,
                self._maker(arm.model),
                POLICIES[arm.policy],
                time_s=time_s,
                iterations=self._iterations,
            )
            self._told[arm, seed] = told
            self._keep(arm, told)
        return told

    def _maker(self, model: str) -> Callable[[Rails], StandIn] | None:
        if not model:
            return None
        make = self._models[model]
        return lambda rails: make(rails, self._world)

    def _keep(self, arm: Arm, told: Told) -> None:
        if self._kept is None:
            return
        line = {"of": self._of, **asdict(arm), "told": asdict(told)}
        with self._kept.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps(line) + "\n")

    @property
    def _of(self) -> list[object]:
        """What nights must have in common."""
        replies = hashlib.sha256(SAID.read_bytes()).hexdigest()[:16] if SAID.exists() else ""
        turns = [SHARE, MODEL_TURNS, SAMPLER_TURNS]
        world = [self._world.name, self._world.best]
        made = [proposers_code(), repr(Rules())]
        return [*world, self._latency_s, self._iterations, *turns, replies, *made]


def run() -> list[Figure]:
    """The product's way to give turns, in the quickest world."""
    return list(figures(Nights(MadeUpWorld(), LATENCY_S), range(NIGHTS), [ALONE.policy]))


def figures(nights: Nights, seeds: range, policies: Sequence[str]) -> Iterator[Figure]:
    """What each arm cost; the goal is of the product's own way to give turns."""
    alone = nights.of(ALONE, seeds)
    yield Figure(
        "true gain of a night, the sampler alone",
        fmean(each.gain for each in alone),
        "bpb",
        note=f"{len(seeds)} nights of {ITERATIONS} iterations; {fmean(e.runs for e in alone):.0f} "
        f"runs, {fmean(e.keeps for e in alone):.1f} keeps",
    )
    for arm in nights.arms(policies):
        told = nights.of(arm, seeds)
        cost = Cost.of([each.gain for each in told], [each.gain for each in alone])
        in_time = Cost.of([each.gain_in_time for each in told], [each.gain for each in alone])
        judged = arm.policy == ALONE.policy and arm.model != "oracle"
        yield Figure(
            f"cost of a model: {arm}",
            100 * cost.mean,
            "%",
            goal=f"at most {100 * WORST:g} %" if judged else None,
            met=cost.mean <= WORST if judged else None,
            note=f"{cost}; at equal time {100 * in_time.mean:+.1f} ({in_time}); "
            f"{fmean(each.turns for each in told):.1f} turns, "
            f"{fmean(each.kept for each in told):.1f} of "
            f"{fmean(each.keeps for each in told):.1f} keeps",
        )
