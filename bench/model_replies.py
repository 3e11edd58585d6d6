"""Ask a small real model for proposals, and count what its replies are worth.

``python -m bench.model_replies --model gemma3 --asks 40`` prints the share of replies and of asks
that pass the rails, the share that repeats the prompt's example, distinct knobs, and tokens. It is
asked about the tests' campaigns, random iterations of cpu-tiny.
"""

import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from agent.menu.rails import Rails
from agent.proposers.base import ProposerError
from agent.proposers.hybrid import Slate
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.prompt import Prompter
from agent.proposers.llm.proposer import LlmProposer
from agent.proposers.llm.reply_form import example_text, slate_example
from agent.proposers.llm.wire import Patience
from agent.proposers.sampler import SamplerProposer
from bench.small_model import MODELS, small_model, why_not
from tests.support.memories import memory_of
from trainer.schema import Budget
from trajectory.proposals import Arm, Attempt, ProposerRecord

TASKS: dict[str, tuple[Arm, ...]] = {"propose": (), "pick": ("pick",), "both": ("pick", "own")}
ITERATIONS = (0, 3, 8, 20)
"""Iterations of the campaigns, in rotation."""
SERVER = "llama-server"
PATIENCE = Patience(timeout_s=600, deadline_s=600)


def one_ask(endpoint: Endpoint, task: str, number: int, tokens: int) -> dict[str, Any]:
    """Return the outcome of one ask."""
    memory = memory_of(ITERATIONS[number % len(ITERATIONS)], seed=number)
    memory = replace(memory, seed=number, max_changes=len(memory.menu.knobs))
    rails = Rails(memory.menu, budget=Budget())
    llm = LlmProposer(endpoint, rails, Prompter(Budget(), tokens=tokens))
    attempts: tuple[Attempt, ...]
    record, changes = ProposerRecord(kind=""), {}
    arms = TASKS[task]
    example = json.loads(example_text(memory, Budget()))
    try:
        if arms:
            slate = Slate.drawn(SamplerProposer(rails), rails, memory)
            example = json.loads(slate_example(memory, slate.names))
            offer = llm.choose(memory, slate, arms)
        else:
            offer = llm.propose(memory)
        record, changes = offer.record, offer.reply.changes
        attempts = record.attempts
    except ProposerError as error:
        attempts = error.attempts
    return {
        "allowed": [bool(one.verdict and one.verdict.allowed) for one in attempts],
        "why": [one.error or (one.verdict.why if one.verdict else "") for one in attempts],
        "raw": [one.raw for one in attempts],
        "example": [_is(one.raw, example) for one in attempts],
        "arm": record.arm,
        "changes": changes,
        "tokens": [(one.prompt_tokens, one.completion_tokens) for one in attempts],
        "latency_s": [one.latency_s for one in attempts],
    }


def _is(raw: str, example: object) -> bool:
    try:
        return bool(json.loads(raw) == example)
    except ValueError:
        return False


def summary(asked: list[dict[str, Any]]) -> str:
    """Return the figures of several asks in one line."""
    knobs = Counter(name for ask in asked for name in _names(ask["changes"]))
    read = [count for ask in asked for count, _ in ask["tokens"][:1] if count]
    written = [count for ask in asked for _, count in ask["tokens"] if count]
    replies = [allowed for ask in asked for allowed in ask["allowed"]]
    return (
        f"{len(asked)} asks: first reply valid {fmean(ask['allowed'][0] for ask in asked):.0%}, "
        f"a reply valid {fmean(any(ask['allowed']) for ask in asked):.0%}, "
        f"of {len(replies)} replies {fmean(replies):.0%}; the example's words "
        f"{fmean(any(ask['example']) for ask in asked):.0%}; {len(knobs)} knobs; arms "
        f"{dict(Counter(ask['arm'] for ask in asked))}; tokens read {fmean(read or [0]):.0f} "
        f"(most {max(read or [0])}), written {fmean(written or [0]):.0f} a reply"
    )


def _names(changes: object) -> list[str]:
    if isinstance(changes, list):
        return [one["knob"] for one in changes]
    return list(changes) if isinstance(changes, dict) else []


def main(
    model: Annotated[str, typer.Option(help=f"One of {', '.join(MODELS)}.")] = "smollm2",
    task: Annotated[str, typer.Option(help=f"One of {', '.join(TASKS)}.")] = "pick",
    asks: Annotated[int, typer.Option(min=1, help="Turns.")] = 40,
    tokens: Annotated[int, typer.Option(min=1000, help="Longest prompt.")] = 3000,
    out: Annotated[Path | None, typer.Option(help="Append each ask here as JSON.")] = None,
) -> None:
    """Ask the model and print the figures."""
    if missing := why_not(SERVER, model):
        raise typer.BadParameter(missing)
    asked = []
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        with small_model(SERVER, log, context=8192, model=model) as url:
            endpoint = Endpoint(url, patience=PATIENCE)
            for number in range(asks):
                asked.append(one_ask(endpoint, task, number, tokens))
                if out is not None:
                    with out.open("a") as file:
                        file.write(json.dumps({"model": model, "task": task, **asked[-1]}) + "\n")
    typer.echo(f"{model}, {task}: {summary(asked)}")


if __name__ == "__main__":
    typer.run(main)
