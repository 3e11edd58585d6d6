"""Run a night in which a small real model chooses, and print what its replies are worth.

``python -m bench.model_night DIR --model gemma3`` runs the product's own loop in the made-up world
of :mod:`bench.search.made_up`, so that only the model takes time. A night that was stopped resumes.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.hybrid import HybridProposer
from agent.proposers.llm.completions import Conversations
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.sampler import SamplerProposer
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.stopping import Goal
from autoresearch.layout import JOURNAL_FILE
from bench.model_replies import PATIENCE, SERVER
from bench.search.made_up import MadeUpWorld
from bench.small_model import MODELS, small_model, why_not
from tests.support.simulated.account import Account
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import no_corpus, put_together
from trajectory.journal import read_rows
from trajectory.rows import IterationRow, Rules


class Unwatched(Account):
    """Keep no account: a resumed night has no beginning."""

    def baseline_measured(self, row: object) -> None: ...
    def iteration_ended(self, row: object) -> None: ...


def run(directory: Path, url: str, iterations: int, tokens: int) -> None:
    """Run or resume the night."""
    world = MadeUpWorld()
    settings = new_settings(world.menu, world.menu.name, {"seed": 0})

    def proposer(rails: Rails) -> Proposer:
        prompter = Prompter(rails.budget, tokens=tokens)
        kept = Conversations(directory)
        llm = LlmProposer(Endpoint(url, patience=PATIENCE), rails, prompter, kept)
        return HybridProposer(SamplerProposer(rails), llm.choose, rails, share=1)

    with (
        Campaign(
            directory, settings, world.menu, no_corpus(directory.parent), sandbox="simulated"
        ) as campaign,
        SimulatedExecutor(world) as executor,
    ):
        watcher = Unwatched(world, campaign)
        put_together(campaign, proposer, Rules(), executor, watcher).run(Goal(iterations))


def replies(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield each reply of the night, and whether it repeats the example at its prompt's end."""
    kept = Conversations(directory)
    for row in read_rows(directory / JOURNAL_FILE):
        if not isinstance(row, IterationRow) or row.proposer.prompt_sha256 is None:
            continue
        messages = kept.read(row.proposer.prompt_sha256)
        example = messages[-1].content.strip().splitlines()[-1] if messages else ""
        for one in row.proposer.attempts:
            yield {
                "iter": row.iter,
                "valid": bool(one.verdict and one.verdict.allowed),
                "example": one.raw.split() == example.split(),
                "arm": row.proposer.arm,
                "knobs": list(row.proposal.changes) if row.proposal else [],
                "tokens": (one.prompt_tokens or 0, one.completion_tokens or 0),
                "raw": one.raw,
            }


def summary(said: list[dict[str, Any]]) -> str:
    """Return the figures of a night's replies in one line."""
    knobs = {knob for one in said for knob in one["knobs"]}
    read, written = zip(*(one["tokens"] for one in said), strict=True)
    return (
        f"{len(said)} replies in {len({one['iter'] for one in said})} turns: "
        f"{fmean(one['valid'] for one in said):.0%} valid, "
        f"{fmean(one['example'] for one in said):.0%} repeat the example; arms "
        f"{dict(Counter(one['arm'] for one in said))}; {len(knobs)} knobs; tokens a turn read "
        f"{fmean(read):.0f}, written {fmean(written):.0f}"
    )


def main(
    directory: Annotated[Path, typer.Argument(help="The night's directory.")],
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "smollm2",
    iterations: Annotated[int, typer.Option(min=0, help="Iterations in all.")] = 40,
    tokens: Annotated[int, typer.Option(min=1000, help="Longest prompt.")] = 3000,
) -> None:
    """Run the night with one model, and print the figures."""
    if missing := why_not(SERVER, model):
        raise typer.BadParameter(missing)
    directory.parent.mkdir(parents=True, exist_ok=True)
    log = directory.parent / f"{model}.log"
    with small_model(SERVER, log, context=8192, model=model) as url:
        run(directory, url, iterations, tokens)
    typer.echo(f"{model}: {summary(list(replies(directory)))}")


if __name__ == "__main__":
    typer.run(main)
