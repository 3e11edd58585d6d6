"""The prompt: what a language model is shown, within a budget of tokens.

The templates say it, :mod:`agent.proposers.digest` gathers it, and this decides what fits. Never
dropped: the menu, the constraints, the reference, the noise, the answer's format and the user's
own directions (to a third of the budget). Then, while there is room: the best configs, recent
failures, what each knob did, knobs never touched, what earlier campaigns found, and the rest of
history. Whatever is left out
is counted in the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.proposers.base import Memory, ProposerError
from agent.proposers.completions import Message
from agent.proposers.conversations import messages_sha256
from agent.proposers.digest import Digest
from agent.proposers.templates import load_templates
from agent.proposers.tokens import TURN_TOKENS, estimate_tokens
from agent.replies import MAX_REASON_CHARACTERS
from agent.wording import changes_text
from trainer.spec import Budget, Config, Scalar

SYSTEM, USER, REPAIR = "system.md.j2", "user.md.j2", "repair.md.j2"
SECTIONS = ("best", "failures", "effects", "untouched", "priors", "history")
"""What may be dropped, the last first."""
SHOWN_REPLY_CHARACTERS = 900
"""Of a refused reply, in the turn that asks for a better one. Two of those and their verdicts
fit beside a prompt of 6,000 and a reply of 1,024 tokens in a context of 8,192."""

_VARIABLES = {
    SYSTEM: {"knobs", "tied", "constants", "constraints", "budget", "max_changes", "max_reason"}
    | {"example", "program", "program_cut"},
    USER: {"iteration", "reference", "baseline", "noise", "refusals", "configs", "failed"}
    | {"suggestion", *SECTIONS},
    REPAIR: {"why", "max_changes"},
}


@dataclass(frozen=True, slots=True)
class Section:
    """The lines of a section that fit, and how many did not."""

    lines: tuple[str, ...]
    omitted: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat to send."""

    messages: tuple[Message, ...]

    @property
    def tokens(self) -> int:
        """An estimate that errs upwards."""
        return sum(TURN_TOKENS + estimate_tokens(each.content) for each in self.messages)

    @property
    def sha256(self) -> str:
        """Of the messages as they go over the wire."""
        return messages_sha256(self.messages)


class Prompter:
    """Writes prompts from the shipped templates, or from those of the same name in a directory.

    :param budget: what a trial trains for.
    :param tokens: the longest prompt, estimated upwards.
    :param directory: templates that replace shipped ones, file by file.
    :param program: the user's own research directions.
    :raises SettingsError: on a template that cannot be read, or names what does not exist.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        tokens: int = 6000,
        directory: Path | None = None,
        program: str = "",
    ) -> None:
        self._budget = budget
        self._tokens = tokens
        self._program = _cut_to(program.strip(), tokens // 3)
        self._program_cut = self._program != program.strip()
        self._templates = load_templates(directory, _VARIABLES)

    def prompt(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Prompt:
        """The prompt for one iteration.

        :param suggestion: the sampler's changes, which the model may override.
        :raises ProposerError: where the parts that are never dropped exceed the budget.
        """
        digest = Digest.of(memory)
        facts = _facts(memory, digest, suggestion)
        system = self._system(memory)
        room = self._tokens - self._written(system, facts, _fitting(digest, 0)).tokens
        if room < 0:
            raise ProposerError(
                f"the menu, the reference and the directions alone need about "
                f"{self._tokens - room} tokens of a prompt of {self._tokens}; raise "
                "--prompt-tokens or shorten --program"
            )
        while True:
            prompt = self._written(system, facts, _fitting(digest, room))
            if prompt.tokens <= self._tokens or room == 0:
                return prompt
            # Headings came with the lines, and a user's own template may say a line twice.
            room = max(0, room * self._tokens // prompt.tokens - 16)

    def repair(self, memory: Memory, reply: str, why: str) -> tuple[Message, Message]:
        """The turns that show a model its own reply and what was wrong with it."""
        asked = self._render(REPAIR, {"why": why, "max_changes": memory.max_changes})
        answer = reply.rpartition("</think>")[2].strip()
        shown = answer[:SHOWN_REPLY_CHARACTERS]
        return Message("assistant", shown or "(nothing)"), Message("user", asked)

    def _written(
        self, system: str, facts: Mapping[str, Any], sections: Mapping[str, Section]
    ) -> Prompt:
        user = self._render(USER, {**facts, **sections})
        return Prompt((Message("system", system), Message("user", user)))

    def _system(self, memory: Memory) -> str:
        menu = memory.menu
        knob = next(iter(menu.knobs.values()))
        example = {"changes": {knob.name: knob.default}, "reason": "…"}
        return self._render(
            SYSTEM,
            {
                "knobs": tuple(menu.knobs.values()),
                "tied": tuple(str(tie) for tie in menu.ties.values()),
                "constants": dict(menu.constants),
                "constraints": menu.constraints,
                "budget": str(self._budget),
                "max_changes": memory.max_changes,
                "max_reason": MAX_REASON_CHARACTERS,
                "example": json.dumps(example, ensure_ascii=False),
                "program": self._program,
                "program_cut": self._program_cut,
            },
        )

    def _render(self, name: str, variables: Mapping[str, Any]) -> str:
        return self._templates[name].render(variables)


@dataclass(frozen=True, slots=True)
class Point:
    """A config as the prompt shows it."""

    values: str
    mean: float | None
    """val_bpb; None where it was not measured."""
    n: int


@dataclass(frozen=True, slots=True)
class NoiseLevel:
    """What of a difference is chance, in bits per byte."""

    sigma: float
    difference: float
    """Two single runs of one config differ by more than this once in twenty times."""


def _facts(
    memory: Memory, digest: Digest, suggestion: Mapping[str, Scalar] | None
) -> dict[str, Any]:
    sigma = memory.evidence.sigma
    return {
        "iteration": memory.iter,
        "reference": _point(memory, memory.reference),
        "baseline": _point(memory, memory.menu.baseline),
        "noise": None if sigma is None else NoiseLevel(sigma, 1.96 * 2**0.5 * sigma),
        "refusals": dict(memory.evidence.refusals.most_common()),
        "configs": digest.configs,
        "failed": digest.failed,
        "suggestion": None if suggestion is None else json.dumps(dict(suggestion)),
    }


def _point(memory: Memory, config: Config) -> Point:
    entry = memory.evidence.configs.get(config.config_hash)
    values = changes_text(memory.menu.knob_values(config))
    if entry is None or not entry.scores:
        return Point(values, None, 0)
    return Point(values, entry.mean, entry.n)


def _fitting(digest: Digest, room: int) -> dict[str, Section]:
    """The sections' lines in order until the first that does not fit in ``room`` tokens."""
    sections: dict[str, Section] = {}
    for name in SECTIONS:
        lines: tuple[str, ...] = getattr(digest, name)
        fitting = 0
        for line in lines:
            room -= estimate_tokens(line) + 4  # its bullet and newline
            if room < 0:
                break
            fitting += 1
        omitted = len(lines) - fitting
        if name == "history":
            omitted = digest.configs - len(sections["best"].lines) - fitting
        sections[name] = Section(lines[:fitting], omitted)
    return sections


def _cut_to(text: str, tokens: int) -> str:
    """As many whole lines as fit; of a first line that does not, as much as does."""
    kept: list[str] = []
    left = tokens
    for line in text.splitlines():
        left -= estimate_tokens(line) + 1
        if left < 0:
            break
        kept.append(line)
    # A character of four bytes is the most tokens a character can be.
    return "\n".join(kept) if kept else text[: tokens // 4]
