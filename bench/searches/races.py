"""Where runs are spent, done otherwise: who is raced again, with which seeds races begin, and how
early a run that looks bad is stopped.

Who is raced again is a config that was tried before and not kept. Two ways to choose it, both on
differences measured on common seeds: *top-two* Thompson sampling (Russo 2016, arXiv 1602.08448),
whose leader is the reference and whose challenger is the best of one draw for each other config;
and the largest shortfall by optimal computing budget allocation (OCBA; Chen, Lin, Yücesan and Chick
2000), which is the config whose difference to the reference is surest to be told by another run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from dataclasses import replace
from math import sqrt
from pathlib import Path
from random import Random
from typing import TypeAlias

from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.contrasts import Contrast, contrast
from agent.proposers.draws import Draw, against_reference, rng_for
from agent.search.campaign import Campaign
from agent.search.loop import Loop
from agent.search.seed_blocks import seeds_of
from agent.search.turns.pending import PendingIteration
from agent.search.turns.turn import Turn
from bench.simulator.executor import SimulatedExecutor, SimulatedJob
from bench.simulator.world import World
from trainer.executors.base import Finished
from trainer.spec import AnyConfig, CurvePoint, TrialSpec
from trajectory.evidence import ConfigEvidence
from trajectory.proposals import ProposerRecord
from trajectory.ranking import Noise
from trajectory.rules import Rules

Choose: TypeAlias = Callable[[Random, Collection[tuple[ConfigEvidence, Contrast]]], ConfigEvidence]
"""Of configs with what they measured above the reference: who is raced again."""
AGAIN = "raced again"
"""The reason by which the rails know such a proposal."""
EVERY = 4
"""One iteration of so many races again, where there is anybody to."""
LIKELY = -1.0
"""Standard errors: what measured worse than the reference by more is not raced again."""
MOST_RUNS = 12
"""Of one config, after which it is not raced again."""
STRICTER_NATS = 0.25
"""Off the margin of a first look, which is 0.3 at least."""


def top_two(rng: Random, known: Collection[tuple[ConfigEvidence, Contrast]]) -> ConfigEvidence:
    """The lowest of one draw of each difference."""
    draws = {
        entry.config_hash: measured.delta + (measured.stderr or 0) * rng.gauss(0, 1)
        for entry, measured in known
    }
    return min((entry for entry, _ in known), key=lambda entry: draws[entry.config_hash])


def ocba(_rng: Random, known: Collection[tuple[ConfigEvidence, Contrast]]) -> ConfigEvidence:
    """The largest shortfall: shares go by ``(sigma / delta)²``, and it has had ``n``."""
    entry, _ = min(known, key=lambda one: one[1].delta ** 2 * one[0].n)
    return entry


class RaceAgain:
    """Another proposer, and at every fourth iteration a config that is worth racing again."""

    def __init__(self, rails: Rails, proposer: Proposer, choose: Choose) -> None:
        self._rails = rails
        self._proposer = proposer
        self._choose = choose

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: where the other proposer has none.
        """
        known = [] if memory.iter % EVERY else self._open(memory)
        if not known:
            return self._proposer.propose(memory)
        entry = self._choose(rng_for("again", memory), known)
        values = dict(memory.menu.knob_values(entry.config))
        draw = Draw(against_reference(memory, values), AGAIN)
        return Offer(draw.raw, ProposerRecord(kind="again"))

    def _open(self, memory: Memory) -> list[tuple[ConfigEvidence, Contrast]]:
        """Who could be better than the reference for all that is known, and is one edit away."""
        configs = memory.evidence.configs
        reference, noise = configs[memory.reference.config_hash], Noise.of(memory.evidence.tally)
        found = []
        for entry in configs.values():
            if entry is reference or entry.failures or entry.same_as or entry.n >= MOST_RUNS:
                continue
            measured = contrast(entry, reference, noise)
            if measured is None or not measured.pairs or measured.stderr is None:
                continue
            if -measured.delta < LIKELY * measured.stderr or not self._allows(entry, memory):
                continue
            found.append((entry, measured))
        return found

    def _allows(self, entry: ConfigEvidence, memory: Memory) -> bool:
        now, then = (memory.menu.knob_values(one) for one in (memory.reference, entry.config))
        return sum(now[name] != then[name] for name in now) <= memory.max_changes


class RailsAgain(Rails):
    """Rails that let a config through that was tried before."""

    def check(
        self,
        raw: str,
        reference: AnyConfig,
        tried: Container[str] = (),
        *,
        replicate: bool = False,
    ) -> Checked:
        """See :meth:`agent.menu.rails.Rails.check`."""
        return super().check(raw, reference, tried, replicate=replicate or AGAIN in raw)


class PatientLoop(Loop):
    """Races of a config that was tried before go on for twice as long and are given up later."""

    __slots__ = ()

    def _raced(self, pending: PendingIteration) -> Turn:
        known = self.campaign.evidence.configs
        if pending.config is None or pending.config.config_hash not in known:
            return super()._raced(pending)
        shipped, self.rules = self.rules, patient(self.rules)
        try:
            return super()._raced(pending)
        finally:
            self.rules = shipped


def patient(rules: Rules) -> Rules:
    """Those of a race that is run a second time; the bar of its last pair is as high in bits as
    that of a race of half its length, so that a second try is no cheaper win."""
    return rules.model_copy(
        update={
            "max_runs": 2 * rules.max_runs,
            "z_keep": rules.z_keep * sqrt(2),
            "first_drop": 1.5,
            "z_drop": 1.5,
        }
    )


class RememberingExecutor(SimulatedExecutor):
    """What ran once is not run again: it takes no time."""

    def __init__(self, world: World, places: int = 1) -> None:
        super().__init__(world, places)
        self._ran: set[tuple[str, int]] = set()

    def _run(self, spec: TrialSpec, trial_dir: Path) -> tuple[Finished, tuple[CurvePoint, ...]]:
        finished, points = super()._run(spec, trial_dir)
        key = (spec.config.config_hash, spec.seed)
        if key in self._ran:
            return replace(finished, wall_s=0.0), points
        self._ran.add(key)
        return finished, points


class OtherSeeds(Campaign):
    """Races begin at another seed each: what the reference scored by luck is held against one
    candidate and not against all. The reference is so measured more often than any other config,
    as optimal allocation has it."""

    @property
    def baseline_seeds(self) -> range:
        """See :attr:`agent.search.campaign.Campaign.baseline_seeds`."""
        every = seeds_of(self.settings.seed, "search")
        begun = min(self.evidence.iterations, len(every) - 50)
        return every[begun : begun + self.settings.baseline_seeds]


class ShortLooks(SimulatedExecutor):
    """First looks with a narrow margin: 0.05 nats above the reference's own curve, and not 0.3, end
    a run at 20 of 60 steps."""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> SimulatedJob:
        """See :meth:`Executor.submit`."""
        if spec.prune is not None:
            stricter = {"max_loss": spec.prune.max_loss - STRICTER_NATS}
            spec = spec.model_copy(update={"prune": spec.prune.model_copy(update=stricter)})
        return super().submit(spec, trial_dir)
