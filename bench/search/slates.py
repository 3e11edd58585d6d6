"""Measure what it is worth to choose among several of the sampler's candidates.

``python -m bench.search.slates ROWS.jsonl --nights 40`` searches with each arm, paired by seed, and
writes a row per night, so that a run that was stopped continues. ``--table`` prints the differences
to the sampler alone. ``--world MODULE:FUNCTION`` names another world than the made-up one.
"""

import importlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any

import typer

from agent.menu.rails import Rails
from agent.proposers.base import Offer, SearchView
from agent.proposers.draws import Draw, first_allowed, gate, rng_for, uniform_draws
from agent.proposers.hybrid import SHARE, SIZE, HybridProposer, Slate
from agent.proposers.sampler import SamplerProposer
from autoresearch.values import Scalar
from bench.search.quality import stderr
from tests.support.simulated.night import MakeProposer, night
from tests.support.simulated.world import World
from trainer.schema import gpt
from trajectory.proposals import MODEL, Arm, ProposerRecord

FIRST_SEED = 2000
STAGES = (20, 40, 100)
ALONE = "the sampler alone"
TEXTBOOK: tuple[Mapping[str, Scalar], ...] = (
    {"lr": 3e-3},
    {"positions": "rotary"},
    {"activation": "swiglu"},
    {"norm": "rmsnorm"},
    {"beta2": 0.98},
    {"beta2": 0.99},
    {"lr_warmup": 20},
    {"weight_decay": 0.05},
    {"grad_clip": 0.5},
    {"lr": 6e-3},
    {"lr": 3e-3, "lr_warmup": 20},
    {"positions": "rotary", "norm": "rmsnorm", "activation": "swiglu"},
    {"n_layer": 3, "d_model": 160},
    {"n_layer": 2, "d_model": 192},
    {"batch_size": 16, "seq_len": 64},
    {"batch_size": 4, "seq_len": 256},
    {"tie_embeddings": False},
    {"beta1": 0.8},
)
"""Settings that textbooks and public recipes would try, each from the reference of its time."""

OTHER_SHARES = (0.3, 0.7)
OWN_SHARE = 0.3
"""Share of a stand-in's turns in which it makes changes of its own, if it may: the best or the
worst of as many small edits as a slate has candidates."""

Choose = Callable[[Random, Sequence[float]], int]
"""Chooses among true objectives, infinite for a config that cannot be trained."""


def by_chance(rng: Random, truths: Sequence[float]) -> int:
    """Choose uniformly."""
    return rng.randrange(len(truths))


def best(rng: Random, truths: Sequence[float]) -> int:
    """Choose the best."""
    return truths.index(min(truths))


def worst(rng: Random, truths: Sequence[float]) -> int:
    """Choose the worst."""
    return truths.index(max(truths))


def half_best(rng: Random, truths: Sequence[float]) -> int:
    """Choose the best in half of the turns, and by chance in the others."""
    return best(rng, truths) if rng.random() < 0.5 else by_chance(rng, truths)


def truths_of(world: World, rails: Rails, view: SearchView, offers: Sequence[Offer]) -> list[float]:
    """Return the true objective of each offer."""
    found = []
    for offer in offers:
        config = rails.check(offer.reply, view.reference, view.tried).config
        truth = None if config is None else world.truth(gpt(config))
        found.append(float("inf") if truth is None else truth)
    return found


class Picking:
    """Picks from a slate in every iteration, and notes the outcome that its picks truly have."""

    def __init__(self, world: World, rails: Rails, choose: Choose, seen: list[Any]) -> None:
        self._world = world
        self._rails = rails
        self._choose = choose
        self._seen = seen

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        slate = Slate.drawn(SamplerProposer(self._rails), self._rails, view)
        truths = truths_of(self._world, self._rails, view, slate.offers)
        pick = self._choose(rng_for("picking", view), truths)
        reference = self._world.truth(gpt(view.reference)) or 0.0
        predicted = [(each.delta, each.sd) for each in slate.candidates]
        self._seen.append([view.iter, pick, predicted, [one - reference for one in truths]])
        return slate.offers[pick]


class Choosing:
    """Stands in for a language model of known worth behind the product's own proposer."""

    def __init__(self, world: World, rails: Rails, choose: Choose, seen: list[Any]) -> None:
        self._world = world
        self._rails = rails
        self._choose = choose
        self._seen = seen

    def choose(self, view: SearchView, slate: Slate, arms: Collection[Arm]) -> Offer:
        """Choose as the language model would."""
        rng = rng_for("picking", view)
        offers = slate.offers
        arm: Arm = "own" if "own" in arms and rng.random() < OWN_SHARE else "pick"
        if arm == "own":
            offers = tuple(self._own(rng, view))
        truths = truths_of(self._world, self._rails, view, offers)
        reply = offers[self._choose(rng, truths)].reply
        self._seen.append([view.iter, arm])
        prediction = slate.prediction(reply.changes)
        return Offer(reply, ProposerRecord(kind=MODEL, arm=arm, prediction=prediction))

    def _own(self, rng: Random, view: SearchView) -> Iterator[Offer]:
        """Yield small edits, as many as a slate has."""
        allowed = gate(self._rails, view)
        draws = filter(allowed, uniform_draws(rng, view, "an idea of its own"))
        for draw in islice(draws, SIZE):
            yield Offer(draw, ProposerRecord(kind=MODEL))


class Textbook:
    """Tries the textbook's settings first, then leaves everything to the sampler."""

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        draws = (Draw(dict(changes), "a textbook's setting") for changes in TEXTBOOK)
        draw = first_allowed(self._rails, view, draws, len(TEXTBOOK))
        if draw is None:
            return SamplerProposer(self._rails).propose(view)
        return Offer(draw, ProposerRecord(kind="textbook"))


def arms(world: World, seen: list[Any]) -> dict[str, MakeProposer]:
    """Return the constructor of each arm's proposer.

    :param seen: receives what each turn showed and what its candidates truly come to.
    """

    def picking(choose: Choose) -> MakeProposer:
        return lambda rails: Picking(world, rails, choose, seen)

    def chosen(choose: Choose, share: float = SHARE) -> MakeProposer:
        return lambda rails: HybridProposer(
            SamplerProposer(rails), Choosing(world, rails, choose, seen).choose, rails, share=share
        )

    return {
        ALONE: SamplerProposer,
        "pick by chance": picking(by_chance),
        "the best in half of the turns": picking(half_best),
        "always the best": picking(best),
        "always the worst": picking(worst),
        "a textbook's list first": Textbook,
        "the product, half-good model": chosen(half_best),
        "the product, good model": chosen(best),
        "the product, random model": chosen(by_chance),
        "the product, harmful model": chosen(worst),
        **{
            f"the product at share {share:g}, {name} model": chosen(choose, share)
            for share in OTHER_SHARES
            for name, choose in (("half-good", half_best), ("harmful", worst))
        },
    }


def one_night(world: World, arm: str, seed: int, iterations: int) -> dict[str, Any]:
    """Return the row of one night."""
    seen: list[Any] = []
    done = night(world, arms(world, seen)[arm], seed=seed, iterations=iterations)
    return {
        "world": world.name,
        "arm": arm,
        "seed": seed,
        "iterations": iterations,
        "seconds": done.seconds,
        "stages": [(one.iteration, round(one.train_s, 2), one.truth) for one in done.stages],
        "turns": seen,
    }


def gain(row: Mapping[str, Any], iteration: int) -> float | None:
    """Return the true gain over the baseline after that many iterations, if the night has them."""
    stages = row["stages"]
    return stages[0][2] - stages[iteration][2] if iteration < len(stages) else None


def gain_in_time(row: Mapping[str, Any], alone: Mapping[str, Any], iteration: int) -> float | None:
    """Return the true gain at the time at which the sampler alone ended that iteration."""
    if iteration >= len(alone["stages"]):
        return None
    stages = [one for one in row["stages"] if one[1] <= alone["stages"][iteration][1]]
    return float(stages[0][2] - stages[-1][2]) if stages else None


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a Markdown table of each arm's true gain, less that of the sampler alone: after equal
    iterations, then after equal training time."""
    known = {(row["arm"], row["seed"]): row for row in rows}
    heads = [*(f"at {count}" for count in STAGES), *(f"at {count}, equal time" for count in STAGES)]
    yield f"| arm | nights | {' | '.join(heads)} |"
    yield f"| --- | --- |{' --- |' * len(heads)}"
    for arm in dict.fromkeys(row["arm"] for row in rows):
        pairs = [
            (row, known[ALONE, seed])
            for (name, seed), row in known.items()
            if name == arm and (ALONE, seed) in known
        ]
        cells = [
            *(_cell(arm, [(gain(a, n), gain(b, n)) for a, b in pairs]) for n in STAGES),
            *(_cell(arm, [(gain_in_time(a, b, n), gain(b, n)) for a, b in pairs]) for n in STAGES),
        ]
        yield f"| {arm} | {len(pairs)} | {' | '.join(cells)} |"


def _cell(arm: str, pairs: Sequence[tuple[float | None, float | None]]) -> str:
    known = [(own, alone) for own, alone in pairs if own is not None and alone is not None]
    if not known:
        return ""
    if arm == ALONE:
        return f"{fmean(own for own, _ in known):.3f} bpb"
    differences = [own - alone for own, alone in known]
    share = sum(differences) / sum(alone for _, alone in known)
    return f"{fmean(differences):+.3f} ± {stderr(differences):.3f} ({100 * share:+.0f} %)"


def main(
    rows: Annotated[Path, typer.Argument(help="File of rows, one per night.")],
    nights: Annotated[int, typer.Option(min=0, help="Nights per arm.")] = 40,
    iterations: Annotated[int, typer.Option(min=20, help="Iterations per night.")] = 100,
    world: Annotated[str, typer.Option(help="MODULE:FUNCTION that makes the world.")] = (
        "bench.search.made_up:MadeUpWorld"
    ),
    arm: Annotated[list[str] | None, typer.Option(help="Arms to run; all by default.")] = None,
) -> None:
    """Search with each arm, write a row per night, and print the table."""
    found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    module, _, name = world.partition(":")
    place: World = getattr(importlib.import_module(module), name)()
    done = {(row["arm"], row["seed"]) for row in found}
    for seed in range(FIRST_SEED, FIRST_SEED + nights):
        for each in arm or arms(place, []):
            if (each, seed) not in done:
                found.append(one_night(place, each, seed, iterations))
                with rows.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    typer.echo("\n".join(table(found)))


if __name__ == "__main__":
    typer.run(main)
