"""How long a prompt is, by a real model's own count, over the demo's campaign.

llama.cpp's server says how it would render and split a chat without computing anything
(``/apply-template`` and ``/tokenize``), so this takes seconds.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from agent.menu.files import menu_of
from agent.proposers.base import Memory
from agent.proposers.llm.completions import Message
from agent.proposers.llm.conversations import messages_json
from agent.proposers.llm.endpoint import REPLY_SHARE
from agent.proposers.llm.prompt import SHOWN_REPLY_CHARACTERS, Prompter
from agent.proposers.llm.proposer import REPAIRS
from autoresearch.values import Scalar
from bench.figure import Figure
from bench.small_model import small_model, why_not
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow, IterationRow
from trajectory.rules import Rules

DEMO = Path(__file__).parents[2] / "docs" / "demo" / "trajectory.jsonl"
CONTEXTS = (2048, 4096, 8192)
AFTER = (0, 10, 40, 100)
"""Iterations of the demo."""
SERVER = "llama-server"


def memories(after: tuple[int, ...] = AFTER, journal: Path = DEMO) -> Iterator[Memory]:
    """What a proposer was shown after so many iterations of a campaign."""
    campaign, *rows = read_rows(journal)
    assert isinstance(campaign, CampaignRow)
    for iterations in after:
        until = (r for r in rows if not isinstance(r, IterationRow) or r.iter <= iterations)
        yield _memory(campaign, Evidence(until))


def _memory(campaign: CampaignRow, evidence: Evidence) -> Memory:
    menu = menu_of(campaign)
    reference = evidence.configs[evidence.incumbent_hash or ""].config
    return Memory(
        menu=menu,
        reference=reference,
        evidence=evidence,
        iter=evidence.iterations + 1,
        seed=campaign.seed,
        max_changes=campaign.max_changes,
        until=100,
        corpus=campaign.corpus,
        rules=Rules(),
    )


@dataclass(frozen=True, slots=True)
class Size:
    """Of one prompt."""

    context: int
    iterations: int
    tokens: int
    """By the model's own count."""
    estimate: int
    mended: int
    """With as many refused replies as there may be, each as long as is shown of one."""
    shown: int
    """Configs whose measurement is in the prompt."""
    tried: int

    @property
    def whole(self) -> int:
        """With the longest reply asked for."""
        return self.mended + min(1024, int(self.context * REPLY_SHARE))


def sizes(url: str) -> Iterator[Size]:
    """Of every context and stage of the demo.

    :param url: of llama.cpp's server, up to ``/v1``.
    """
    for memory in memories():
        suggestion: dict[str, Scalar] = {"lr": 0.00312345, "d_ff": 768, "norm": "rmsnorm"}
        prompter = Prompter(memory.menu.campaign.budget, horizon_steps=1000)
        for context in CONTEXTS:
            prompt = prompter.prompt(memory, suggestion, context=context)
            said = '{"reason": "' + "a lower rate suits a wider model " * 60
            refused = prompter.repair(
                memory, said[:SHOWN_REPLY_CHARACTERS], "lr 3 is above its highest", context=context
            )
            text = "".join(each.content for each in prompt.messages)
            yield Size(
                context=context,
                iterations=memory.evidence.iterations,
                tokens=counted(url, prompt.messages),
                estimate=prompt.tokens,
                mended=counted(url, (*prompt.messages, *(refused * REPAIRS))),
                shown=sum(line.startswith("- #") for line in text.splitlines()),
                tried=len(memory.evidence.configs) - 1,
            )


def counted(url: str, messages: tuple[Message, ...]) -> int:
    """Tokens of a chat, as the server would read it."""
    root = url.removesuffix("/v1")
    rendered = _asked(f"{root}/apply-template", {"messages": json.loads(messages_json(messages))})
    body = {"content": rendered["prompt"], "add_special": True, "parse_special": True}
    return len(_asked(f"{root}/tokenize", body)["tokens"])


def _asked(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def run() -> list[Figure]:
    """The longest of each context, and whether the estimate errs upwards everywhere."""
    missing = why_not(SERVER)
    if missing is not None:
        return [Figure("prompt's length", float("nan"), "tokens", note=f"{missing}: make model")]
    with (
        tempfile.TemporaryDirectory() as scratch,
        small_model(SERVER, Path(scratch) / "log", context=max(CONTEXTS)) as url,
    ):
        found = list(sizes(url))
    figures = []
    for context in CONTEXTS:
        mine = [size for size in found if size.context == context]
        last, longest = mine[-1], max(mine, key=lambda size: size.whole)
        figures.append(
            Figure(
                f"prompt, two mended replies and a third, context {context:,}",
                longest.whole,
                "tokens",
                goal="within the context",
                met=longest.whole <= context,
                note=f"prompt {last.tokens:,} tokens (estimated {last.estimate:,}) after "
                f"{last.iterations} iterations of the demo, {last.shown} of {last.tried} configs "
                "in it",
            )
        )
    over = max(size.tokens / size.estimate for size in found)
    figures.append(
        Figure("count over estimate, the most", over, "", "at most 1", over <= 1, "SmolLM2's count")
    )
    return figures
