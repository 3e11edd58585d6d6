"""Simulate campaigns: the product's own race, judge, evidence and ranking, in a known world."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, TypeVar

from agent.menu.files import load_menu
from agent.search.race import Race
from bench.judge_worlds import Recipe, World
from tests.support.races import run_race
from trainer.schema import (
    AnyConfig,
    Config,
    CurvePoint,
    Measured,
    PruneRule,
    TrialFailed,
    TrialOk,
    make_config,
)
from trajectory.confirmation import FreshRuns, gains
from trajectory.confirmed import FreshGain
from trajectory.evidence import Evidence
from trajectory.proposals import Proposal, ProposerRecord, Verdict
from trajectory.rows import BaselineRow, IterationRow, Role, Rules, TrialRecord

BASELINE_SEEDS = 5
AT = "2026-01-01T00:00:00.000+00:00"
_ALLOWED = Verdict(allowed=True)
_WHO = ProposerRecord(kind="scripted")


@cache
def _config(number: int) -> Config:
    """Return the ``number``-th distinct config; the baseline is number 0."""
    baseline = load_menu("cpu-tiny").baseline.canonical()
    return make_config(baseline | {"lr": 1e-3 * (1 + number / 1e6)})


RESULT = TrialOk(
    val_bpb=1,
    val_bits_per_token=1,
    val_bytes=1,
    val_tokens=1,
    train_loss_first=1,
    train_loss_last=1,
    steps=60,
    tokens=60,
    params=1,
    step_ms=1,
    tokens_per_s=1,
    train_s=1,
    eval_s=0,
    setup_s=0,
    peak_mem_gib=0,
    backend="torch",
    device="cpu",
    precision="fp32",
)


@dataclass(slots=True)
class Night:
    """A campaign and the truth about it, which is also the runner of its own races."""

    world: World
    rng: random.Random
    evidence: Evidence = field(default_factory=Evidence)
    recipes: dict[str, Recipe] = field(default_factory=dict)
    """Recipes by config_hash."""
    runs: int = 0
    keeps: int = 0
    false_keeps: int = 0
    """Keeps of ideas that made it worse or changed nothing."""
    nulls: int = 0
    """Ideas worth exactly nothing."""
    nulls_kept: int = 0
    race_kind: ClassVar[type[Race]] = Race

    def run(self, config: AnyConfig, seed: int, role: Role) -> TrialRecord:
        """Return one simulated trial."""
        self.runs += 1
        score = self.world.score(self.recipes[config.config_hash], seed, self.rng)
        return TrialRecord(
            trial_id=f"t{self.runs:06d}",
            role=role,
            config_hash=config.config_hash,
            seed=seed,
            result=RESULT.model_copy(update={"val_bpb": score}),
            wall_s=1,
        )

    async def trained(
        self, config: AnyConfig, seed: int, role: Role, _prune: PruneRule | None
    ) -> TrialRecord:
        """See :meth:`run`."""
        return self.run(config, seed, role)

    def curve(self, trial_id: str) -> list[CurvePoint]:
        """Return no points, since simulated trials have no curve."""
        return []

    @property
    def incumbent(self) -> str:
        """Return the incumbent's config_hash."""
        assert self.evidence.incumbent_hash is not None
        return self.evidence.incumbent_hash

    @property
    def true_gain(self) -> float:
        """Return the true gain of the incumbent over the baseline; positive is better."""
        return -self.delta(self.incumbent)

    def delta(self, config_hash: str) -> float:
        """Return a config's true difference to the baseline; negative is better."""
        baseline = self.recipes[self.evidence.baseline_hash or ""]
        return self.recipes[config_hash].bpb - baseline.bpb

    def measure_baseline(self) -> None:
        """Measure the baseline on BASELINE_SEEDS seeds."""
        config = _config(0)
        self.recipes[config.config_hash] = self.world.begin()
        for seed in range(BASELINE_SEEDS):
            trial = self.run(config, seed, "baseline")
            self.evidence.add(
                BaselineRow(at=AT, config=config, config_hash=config.config_hash, trial=trial)
            )

    def iterate(self, rules: Rules) -> None:
        """Race one idea against the incumbent."""
        evidence, reference = self.evidence, self.evidence.configs[self.incumbent].config
        number = evidence.iterations + 1
        candidate = _config(number)
        parent = self.recipes[reference.config_hash]
        idea = self.world.idea(parent, self.rng)
        self.recipes[candidate.config_hash] = idea
        race = self.race_kind(
            trial=self.trained,
            curve=self.curve,
            evidence=evidence,
            rules=rules,
            reference=reference,
            reference_now=lambda: reference,
            candidate=candidate,
            first_seed=0,
            prune=None,
        )
        decision = run_race(race)
        kept = decision.action == "keep"
        self.keeps += kept
        self.false_keeps += kept and idea.bpb >= parent.bpb
        self.nulls += idea.bpb == parent.bpb
        self.nulls_kept += kept and idea.bpb == parent.bpb
        evidence.add(
            IterationRow(
                iter=number,
                at=AT,
                proposer=_WHO,
                proposal=Proposal(changes={"lr": candidate.lr}, reason=""),
                verdict=_ALLOWED,
                config=candidate,
                config_hash=candidate.config_hash,
                trials=tuple(race.trials),
                decision=decision,
                wall_s=1,
            )
        )

    def confirmed(
        self, config_hash: str, seeds: Iterable[int], *, finalists: int = 1, earlier: int = 0
    ) -> FreshGain:
        """Return a config's difference from the baseline on these seeds, which count as runs.

        :param earlier: the number of earlier confirmations.
        """
        results: list[dict[int, Measured | TrialFailed]] = [{}, {}]
        for one, name in zip(
            results, (config_hash, self.evidence.baseline_hash or ""), strict=True
        ):
            config = self.evidence.configs[name].config
            for seed in seeds:
                one[seed] = self.run(config, seed, "reference").result
        ours, theirs = map(FreshRuns, results)
        return gains(ours, theirs, [], finalists=finalists, earlier_analyses=earlier)[0]


N = TypeVar("N", bound=Night)


def nights(
    kind: type[N], world: World, rules: Rules, campaigns: int, enough: Callable[[N], bool]
) -> Iterator[N]:
    """Simulate campaigns of a kind, each until ``enough`` returns True; equal numbers give equal
    campaigns."""
    for number in range(campaigns):
        night = kind(world, random.Random(number))
        night.measure_baseline()
        while not enough(night):
            night.iterate(rules)
        yield night
