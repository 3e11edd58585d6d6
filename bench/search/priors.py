"""Measure what an earlier campaign is worth to the sampler.

``python -m bench.search.priors`` searches twelve nights of 40 iterations in the made-up world, each
without a prior and with one of three kinds, paired by seed, and prints the true gains:

- a night with the same menu, in the same world;
- a night at another size: the best learning rate is halved, tokens and width matter less;
- another tool's trajectory of 40 changes of a single knob, each run once, as published loops write.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any

import typer

from agent.menu.rails import Rails
from agent.proposers.base import Offer, SearchView
from agent.proposers.priors import Prior, read_priors
from agent.proposers.sampler import SamplerProposer
from agent.search.stopping import Goal
from autoresearch.layout import JOURNAL_FILE
from bench.search.made_up import SIGMA, MadeUpWorld
from bench.search.quality import stderr
from tests.support.simulated.account import Account
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import night, put_together, scratch_campaign
from trainer.schema import Config, gpt
from trajectory.rows import Rules

FIRST_SEED = 3000
EARLIER = 500
"""Added to a night's seed for the seed of its prior."""


class OtherSize(MadeUpWorld):
    """The made-up world of larger models."""

    def truth(self, config: Config) -> float | None:
        """See :class:`MadeUpWorld`."""
        as_small = config.model_copy(update={"lr": config.lr * 2})
        there = super().truth(as_small)
        return None if there is None else 0.7 * there


@dataclass(frozen=True, slots=True)
class Informed:
    """The sampler with earlier campaigns."""

    rails: Rails
    priors: tuple[Prior, ...]

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return SamplerProposer(self.rails).propose(replace(view, priors=self.priors))


def earlier_night(world: MadeUpWorld, seed: int, path: Path) -> None:
    """Search a night in a world and keep its journal."""
    with (
        scratch_campaign(world, {"seed": seed + EARLIER}) as campaign,
        SimulatedExecutor(world) as executor,
    ):
        watcher = Account(world, campaign)
        put_together(campaign, SamplerProposer, Rules(), executor, watcher).run(Goal(iterations=40))
        path.write_bytes((campaign.directory / JOURNAL_FILE).read_bytes())


def single_knobs(world: MadeUpWorld, seed: int, path: Path) -> None:
    """Write a trajectory of changes of one knob, none of them run twice."""
    rng, menu = Random(f"foreign:{seed}"), world.menu
    base = gpt(menu.baseline)

    def scored(config: Config) -> float | None:
        truth = world.truth(config)
        return None if truth is None else truth + rng.gauss(0, SIGMA)

    said = menu.knob_values(base)
    start = scored(base)
    lines: list[dict[str, Any]] = [{"_meta": "", "baseline_val_bpb": start, "baseline_cfg": said}]
    while len(lines) < 41:
        knob = rng.choice(list(menu.knobs))
        value = menu.domains[knob].draw(rng)
        config = menu.apply(base, {knob: value})
        score = scored(gpt(config))
        if score is None or value == said[knob]:
            continue
        lines.append(
            {
                "iter": len(lines),
                "stage": "evaluated",
                "verdict_ok": True,
                "proposal": {"knob": knob, "new_value": value, "reason": ""},
                "candidate_cfg": {**said, knob: value},
                "val_bpb": score,
                "decision": "revert",
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


WRITERS: Mapping[str, Callable[[int, Path], None]] = {
    "same menu": lambda seed, path: earlier_night(MadeUpWorld(), seed, path),
    "other size": lambda seed, path: earlier_night(OtherSize(), seed, path),
    "foreign": lambda seed, path: single_knobs(MadeUpWorld(), seed, path),
}


def gains(seed: int, iterations: int, arm: str | None) -> list[float]:
    """Return the true gain after each iteration of a night."""
    world = MadeUpWorld()
    with tempfile.TemporaryDirectory() as scratch:
        priors: tuple[Prior, ...] = ()
        if arm is not None:
            path = Path(scratch) / "earlier.jsonl"
            WRITERS[arm](seed, path)
            priors = read_priors([path], world.menu, Path(scratch) / "campaign")
            assert priors[0].configs, str(priors[0])
        done = night(world, lambda rails: Informed(rails, priors), seed=seed, iterations=iterations)
    return [done.stages[0].truth - stage.truth for stage in done.stages]


def main(
    nights: Annotated[int, typer.Option(min=2)] = 12,
    iterations: Annotated[int, typer.Option(min=20)] = 40,
) -> None:
    """Print a row per kind of prior."""
    seeds = range(FIRST_SEED, FIRST_SEED + nights)
    alone = [gains(seed, iterations, None) for seed in seeds]
    at = [10, 20, iterations]
    print("none:", *(f"{fmean(one[n] for one in alone):.3f} at {n}" for n in at), flush=True)
    for arm in WRITERS:
        found = [gains(seed, iterations, arm) for seed in seeds]
        said = []
        for n in at:
            more = [one[n] - other[n] for one, other in zip(found, alone, strict=True)]
            said.append(f"{fmean(more):+.3f} ± {stderr(more):.3f} at {n}")
        print(f"{arm}:", *said, flush=True)


if __name__ == "__main__":
    typer.run(main)
