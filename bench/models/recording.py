"""Simulated nights with a real small model, live: what they come to, and all that it said.

``python -m bench.models.recording`` (after ``make model``) adds replies to bench/models/said.jsonl,
for nights too many to ask it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, ProposerError
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.llm.reply_form import example_text
from autoresearch.values import Scalar
from bench.models.nights import SAID, one_night
from bench.models.policies import AlwaysAsked
from bench.simulator.made_up import MadeUpWorld
from bench.small_model import small_model
from trainer.spec import Budget
from trajectory.proposals import Attempt

CONTEXT = 8192
PATIENT = Patience(timeout_s=600, deadline_s=1200)


class Listening:
    """A model, and every reply it gave, written down at once."""

    def __init__(self, model: LlmProposer, budget: Budget, kept: Path) -> None:
        self._model = model
        self._kept = kept
        self._budget = budget
        self.attempts: list[Attempt] = []
        self.turns = 0
        self.copies = 0
        """First replies that make the change of the prompt's own example."""

    def propose(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Offer:
        """See :class:`~agent.proposers.base.SuggestibleProposer`."""
        try:
            offer = self._model.propose(memory, suggestion)
        except ProposerError as error:
            self._heard(memory, error.attempts)
            raise
        self._heard(memory, offer.record.attempts)
        return offer

    def _heard(self, memory: Memory, attempts: Sequence[Attempt]) -> None:
        example = json.loads(example_text(memory, self._budget))["changes"]
        self.turns += 1
        self.copies += any(changes_of(attempt.raw) == example for attempt in attempts[:1])
        self.attempts += attempts
        with self._kept.open("a", encoding="utf-8") as kept:
            for attempt in attempts:
                if attempt.error is None:
                    kept.write(json.dumps(attempt.raw) + "\n")


def main(
    nights: Annotated[int, typer.Option(help="As the product gives turns.")] = 4,
    asking: Annotated[int, typer.Option(help="Nights in which it is asked every time.")] = 1,
    asked: Annotated[int, typer.Option(min=1, help="Iterations of such a night.")] = 40,
    context: Annotated[int, typer.Option(min=2048, help="Tokens.")] = CONTEXT,
    keep: Annotated[Path, typer.Option(help="Where replies are kept.")] = SAID,
) -> None:
    """Ask the small model, print what it came to, and keep what it said."""
    world, listening = MadeUpWorld(), list[Listening]()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with small_model("llama-server", log, context=context) as url:

            def model(rails: Rails) -> Listening:
                prompter = Prompter(rails.budget, horizon_steps=1000)
                endpoint = Endpoint(url, patience=PATIENT, modes_path=Path(scratch) / "modes")
                listening.append(
                    Listening(LlmProposer(endpoint, rails, prompter), rails.budget, keep)
                )
                return listening[-1]

            for seed in range(asking):
                told = one_night(world, seed, model, AlwaysAsked, iterations=asked)
                typer.echo(f"asked every time: {told}\n{_said(listening[-1])}")
            for seed in range(nights):
                alone = one_night(world, seed, None)
                told = one_night(world, seed, model, time_s=alone.time_s)
                typer.echo(f"alone   {alone}\nwith it {told}\n{_said(listening[-1])}")


def changes_of(raw: str) -> object:
    """What a reply changes; None where it is no JSON object."""
    try:
        reply = json.loads(raw)
    except ValueError:
        return None
    return reply.get("changes") if isinstance(reply, dict) else None


def _said(heard: Listening) -> str:
    attempts = heard.attempts
    if not attempts:
        return "it was not asked"
    passed = sum(bool(each.verdict and each.verdict.allowed) for each in attempts)
    prompts = [each.prompt_tokens for each in attempts if each.prompt_tokens]
    latency_s = sorted(each.latency_s for each in attempts)[len(attempts) // 2]
    return (
        f"{heard.turns} turns, {heard.copies} began with the example's own change; {len(attempts)} "
        f"replies, {passed} passed the rails; prompts of {min(prompts):,} to {max(prompts):,} "
        f"tokens; {latency_s:.1f} s a reply in the median"
    )


if __name__ == "__main__":
    typer.run(main)
