"""Simulated nights with a real small model, live: what they come to, and all that it said.

``python -m bench.models.recording --nights 8`` (after ``make model``) prints the cost and keeps the
replies in bench/models/said.jsonl, for nights too many to ask it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, ProposerError
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from autoresearch.values import Scalar
from bench.models.nights import SAID, Cost, one_night
from bench.models.policies import AlwaysAsked
from bench.simulator.made_up import MadeUpWorld
from bench.small_model import small_model
from trajectory.proposals import Attempt

CONTEXT = 8192
PATIENT = Patience(timeout_s=600, deadline_s=1200)


class Listening:
    """A model, and every reply it gave."""

    def __init__(self, model: LlmProposer) -> None:
        self._model = model
        self.attempts: list[Attempt] = []

    def propose(self, memory: Memory, suggestion: dict[str, Scalar] | None = None) -> Offer:
        """See :class:`~agent.proposers.base.SuggestibleProposer`."""
        try:
            offer = self._model.propose(memory, suggestion)
        except ProposerError as error:
            self.attempts += error.attempts
            raise
        self.attempts += offer.record.attempts
        return offer


def main(
    nights: Annotated[int, typer.Option(min=1, help="As the product gives turns.")] = 8,
    asking: Annotated[int, typer.Option(help="More nights, in which it is asked every time.")] = 2,
    iterations: Annotated[int, typer.Option(min=1)] = 100,
    keep: Annotated[Path, typer.Option(help="Where replies are kept.")] = SAID,
) -> None:
    """Ask the small model, print what it came to, and keep what it said."""
    world = MadeUpWorld()
    attempts: list[Attempt] = []
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with small_model("llama-server", log, context=CONTEXT) as url:

            def model(rails: Rails) -> Listening:
                prompter = Prompter(rails.budget, horizon_steps=1000)
                endpoint = Endpoint(url, patience=PATIENT, modes_path=Path(scratch) / "modes")
                listening.append(Listening(LlmProposer(endpoint, rails, prompter)))
                return listening[-1]

            listening: list[Listening] = []
            found = []
            for seed in range(nights):
                alone = one_night(world, seed, None, iterations=iterations)
                told = one_night(world, seed, model, time_s=alone.time_s, iterations=iterations)
                found.append((alone, told))
                typer.echo(f"alone {alone}\nwith it {told}")
            for seed in range(asking):
                told = one_night(world, seed, model, AlwaysAsked, iterations=iterations)
                typer.echo(f"asked every time {told}")
            attempts = [attempt for each in listening for attempt in each.attempts]
            lines = [json.dumps(attempt.raw) for attempt in attempts if attempt.error is None]
            keep.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    cost = Cost.of([told.gain for _, told in found], [alone.gain for alone, _ in found])
    typer.echo(f"cost {100 * cost.mean:+.1f} % ({cost})")
    typer.echo(_said(attempts))


def _said(attempts: list[Attempt]) -> str:
    passed = sum(bool(each.verdict and each.verdict.allowed) for each in attempts)
    prompts = [each.prompt_tokens for each in attempts if each.prompt_tokens]
    latency_s = sorted(each.latency_s for each in attempts)[len(attempts) // 2]
    return (
        f"{len(attempts)} replies, {passed} passed the rails; prompts of {min(prompts):,} to "
        f"{max(prompts):,} tokens; {latency_s:.1f} s a reply in the median"
    )


if __name__ == "__main__":
    typer.run(main)
