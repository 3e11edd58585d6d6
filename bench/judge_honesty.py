"""Our judge against the rules the published loops use, on simulated campaigns.

Every policy gets the same number of training runs and the same stream of ideas. An idea's true
effect on the current incumbent is drawn from N(+0.03, 0.05) bpb (most ideas hurt a little, some
help); a run's noise has sd 0.056 of which half the variance is shared by runs on one seed, as
measured on small proxies. What matters is the true gain of the recipe it ends with, how much of the
gain it *claims* is real, and how many of its keeps made things worse.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from agent.judge import Rules, assess
from bench.figure import Figure
from trajectory.ranking import Noise

SIGMA = 0.056
SHARED = SIGMA * math.sqrt(0.5)
OWN = SIGMA * math.sqrt(0.5)
NOISE = Noise(sigma=SIGMA, dof=100, sigma_d=math.sqrt(2) * OWN)
START_BPB = 4.3
RUNS = 170
CAMPAIGNS = 400


@dataclass(slots=True)
class Tally:
    """One simulated campaign as it goes."""

    rng: random.Random
    runs: int = 0
    true: float = START_BPB
    claimed: float = START_BPB
    keeps: int = 0
    false_keeps: int = 0

    def idea(self) -> float:
        return self.true + self.rng.gauss(0.03, 0.05)

    def keep(self, idea: float, claimed: float) -> None:
        self.keeps += 1
        self.false_keeps += idea >= self.true
        self.true, self.claimed = idea, claimed


def one_run(margin: float) -> Callable[[Tally], None]:
    """Keep whatever beats the incumbent's own recorded number by ``margin`` of it, in one run."""

    def campaign(tally: Tally) -> None:
        tally.runs += 1
        tally.claimed = tally.true + tally.rng.gauss(0, SIGMA)
        start = tally.claimed
        while tally.runs < RUNS:
            idea = tally.idea()
            seen = idea + tally.rng.gauss(0, SIGMA)
            tally.runs += 1
            if seen < tally.claimed * (1 - margin):
                tally.keep(idea, seen)
        tally.claimed += START_BPB - start

    return campaign


def racing(tally: Tally) -> None:
    """Our judge: paired seeds, racing, a bar in standard errors."""
    rules = Rules()
    seeds = [tally.rng.gauss(0, SHARED) for _ in range(rules.max_runs)]
    reference = {s: tally.true + seeds[s] + tally.rng.gauss(0, OWN) for s in range(rules.max_runs)}
    tally.runs += 5
    gain = 0.0
    while tally.runs < RUNS:
        idea = tally.idea()
        candidate: dict[int, float] = {}
        for seed, shared in enumerate(seeds):
            candidate[seed] = idea + shared + tally.rng.gauss(0, OWN)
            tally.runs += 1
            if seed not in reference:
                reference[seed] = tally.true + shared + tally.rng.gauss(0, OWN)
                tally.runs += 1
            verdict = assess(candidate, reference, NOISE, rules, reference_hash="")
            if verdict.action != "race":
                break
        if verdict.action == "keep":
            gain += verdict.decision.delta or 0.0
            tally.keep(idea, START_BPB + gain)
            reference = candidate


def run() -> list[Figure]:
    """True gain, share of the claimed gain that is real, and false keeps, per policy."""
    policies: dict[str, Callable[[Tally], None]] = {
        "one run, any gain": one_run(0.0),
        "one run, 0.5 %": one_run(0.005),
        "autoresearch": racing,
    }
    figures = []
    for name, policy in policies.items():
        tallies = []
        for number in range(CAMPAIGNS):
            tally = Tally(random.Random(number))
            policy(tally)
            tallies.append(tally)
        true = fmean(START_BPB - tally.true for tally in tallies)
        claimed = fmean(START_BPB - tally.claimed for tally in tallies)
        keeps = sum(tally.keeps for tally in tallies)
        false = sum(tally.false_keeps for tally in tallies) / max(1, keeps)
        note = f"{RUNS} runs a campaign, mean of {CAMPAIGNS} simulated campaigns"
        figures += [
            Figure(f"true gain ({name})", true, "bpb", note=note),
            Figure(f"claimed gain that is real ({name})", 100 * true / claimed, "%"),
            Figure(f"keeps that made it worse ({name})", 100 * false, "%"),
        ]
    return figures
