"""Compose the prompt for a language model within a budget of tokens.

Templates, which are shipped in ``proposer_prompts``, give the wording,
:mod:`agent.proposers.llm.facts` the content, and this module decides what fits. Never dropped:
the menu, the constraints, the reference, the noise, the answer's format and the user's own
directions (up to a third of the budget). Then, while they fit: the best configs, recent failures,
each knob's effects, untouched knobs, findings of earlier campaigns, and further history. The prompt
counts what is omitted.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from agent.proposers.base import ProposerError, SearchView
from agent.proposers.hybrid import Slate
from agent.proposers.llm.completions import Message, messages_sha256
from agent.proposers.llm.config_lines import belief_lines, slate_lines
from agent.proposers.llm.facts import (
    Digest,
    code_example,
    contract,
    in_flight,
    on_scores,
    point_of,
    refusal_lines,
    variants,
)
from agent.proposers.llm.reply_form import example_text, slate_example
from agent.proposers.llm.tokens import MESSAGE_TOKENS, Section, cut_to, estimate_tokens, fit_lines
from autoresearch.values import Scalar
from autoresearch.words import scalar_text
from trainer.schema import Budget
from trajectory.proposals import Arm

SYSTEM, USER, REPAIR, CODE = "system.md.j2", "user.md.j2", "repair.md.j2", "code.md.j2"
SECTIONS = tuple("best outcomes failures beliefs effects untouched priors history".split())
"""Sections of a digest, which may be dropped, the last first."""
REFUSED_REPLY = "(a reply that could not be used)"
"""Replaces a refused reply in the next request, because models repeat themselves."""
WHOLE_CONTEXT = 8192
"""Tokens. A prompt of 6,000, a reply of 1,024 and two refused replies with their corrections fill
it; a shorter context is divided in the same proportions."""
PROMPT_SHARE = 6000 / WHOLE_CONTEXT
ROOM_SHARE = 0.15
"""Share of a prompt for measurements; if less is left, knobs and constraints lose their
explanations."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A chat to send."""

    messages: tuple[Message, ...]

    @property
    def tokens(self) -> int:
        """Estimated tokens, rounded up."""
        return sum(MESSAGE_TOKENS + estimate_tokens(each.content) for each in self.messages)

    @property
    def sha256(self) -> str:
        """Hash of the messages as they go over the wire."""
        return messages_sha256(self.messages)


@dataclass(frozen=True, slots=True)
class Prompter:
    """Writes prompts."""

    budget: Budget
    """Length of a trial."""
    horizon_steps: int | None = None
    """Steps over which its schedule would decay; None: the budget itself."""
    moves: bool = True
    """Whether a kept config becomes the reference."""
    tokens: int = 6000
    """Longest prompt, estimated upwards."""
    program: str = ""
    """The user's own research directions."""

    def prompt(
        self,
        view: SearchView,
        slate: Slate | None = None,
        arms: Collection[Arm] = (),
        *,
        context: int | None = None,
    ) -> Prompt:
        """Return the prompt for one iteration.

        :param slate: candidates to choose from; None: the model proposes by itself.
        :param arms: what the model may do with a slate.
        :param context: tokens that the server has for a whole conversation; None: enough.
        :raises ProposerError: if the parts that are never dropped exceed the budget.
        """
        tokens = self.tokens if context is None else min(self.tokens, share_of(context))
        digest = Digest.of(view, belief_lines(view, slate.promise) if slate else ())
        facts = self._facts(view, digest, slate, arms)
        system, room = self._essentials(view, digest, facts, tokens)
        if room < 0:
            raise ProposerError(
                f"the menu, the reference and the directions alone need about "
                f"{tokens - room} tokens of a prompt of {tokens}; " + self._fix(tokens, context)
            )
        while True:
            prompt = self._written(system, facts, _sections(digest, room))
            if prompt.tokens <= tokens or room == 0:
                return prompt
            # Headings came with the lines.
            room = max(0, room * tokens // prompt.tokens - 16)

    def code_prompt(self, view: SearchView, name: str, *, context: int | None = None) -> Prompt:
        """Return the prompt that asks for a function for one code knob.

        :raises ProposerError: if what is never dropped exceeds the budget.
        """
        tokens = self.tokens if context is None else min(self.tokens, share_of(context))
        facts = {
            **contract(view, name),
            **on_scores(view),
            "budget": str(self.budget),
            "horizon": self.horizon_steps,
            "program": cut_to(self.program.strip(), tokens // 3),
            "example": code_example(view, name),
        }
        bare = self._about_code(facts, Section((), 0))
        if bare.tokens > tokens:
            raise ProposerError(
                f"the contract of {name} alone needs about {bare.tokens} tokens of a prompt of "
                f"{tokens}; " + self._fix(tokens, context)
            )
        blocks = tuple(variants(view, name))
        return self._about_code(facts, fit_lines({"": blocks}, tokens - bare.tokens - 200)[""])

    def _about_code(self, facts: Mapping[str, Any], tried: Section) -> Prompt:
        said = rendered(CODE, {**facts, "variants": tried.lines, "omitted": tried.omitted})
        return Prompt((Message("user", said),))

    def _essentials(
        self, view: SearchView, digest: Digest, facts: Mapping[str, Any], tokens: int
    ) -> tuple[str, int]:
        """Return the system message, and the tokens left beside the other fixed parts: in full,
        without explanations, or with the directions cut to the remaining tokens."""
        directions = tokens // 3
        system, room = "", -1
        for terse in (False, True, True):
            system = self._system(view, terse=terse, directions=directions)
            room = tokens - self._written(system, facts, _sections(digest, 0)).tokens
            if room >= (tokens * ROOM_SHARE if not terse else 0):
                break
            if terse:
                directions = max(0, directions + room - MESSAGE_TOKENS)
        return system, room

    def repair(
        self, view: SearchView, why: str, said: str, example: str
    ) -> tuple[Message, Message]:
        """Return the messages that tell a model the fault of its reply.

        :param said: the reply as these messages repeat it.
        :param example: the form of a reply.
        """
        known = {"why": why, "max_changes": view.asked_changes, "example": example}
        return Message("assistant", said), Message("user", rendered(REPAIR, known))

    def example(self, view: SearchView, slate: Slate | None) -> str:
        """Return the form of a reply: a choice from the slate, or else changes."""
        return slate_example(view, slate.names) if slate else example_text(view, self.budget)

    def _fix(self, tokens: int, context: int | None) -> str:
        if tokens == self.tokens:
            return "raise --prompt-tokens or shorten --program"
        return (
            f"the server's context of {context} tokens allows no more, whatever --prompt-tokens "
            "is: start it with a longer context or shorten --program"
        )

    def _written(
        self, system: str, facts: Mapping[str, Any], sections: Mapping[str, Section]
    ) -> Prompt:
        shown = {name: asdict(section) for name, section in sections.items()}
        user = rendered(USER, {**facts, **shown})
        return Prompt((Message("system", system), Message("user", user)))

    def _system(self, view: SearchView, *, terse: bool, directions: int) -> str:
        """Return the system message, equal within a session so that a server can cache it."""
        menu = view.menu
        whole = self.program.strip()
        program = cut_to(whole, directions)
        unsaid = {"doc": ""} if terse else {}
        knobs = [
            {
                **knob.model_dump(mode="json"),
                "domain": str(menu.open_domains[knob.name]),
                "when": knob.when,
                **unsaid,
            }
            for knob in menu.knobs.values()
            if knob.name in menu.open_domains and knob.name not in menu.code_knobs
        ]
        constraints = [{**each.model_dump(mode="json"), **unsaid} for each in menu.constraints]
        return rendered(
            SYSTEM,
            {
                **on_scores(view),
                "knobs": knobs,
                "tied": tuple(str(tie) for tie in menu.ties.values()),
                "constants": {**menu.constants, **_frozen(view)},
                "constraints": constraints,
                "budget": str(self.budget),
                "horizon": self.horizon_steps,
                "corpus": view.corpus and view.corpus.model_dump(mode="json"),
                "moves": self.moves,
                "max_changes": view.asked_changes,
                "example": example_text(view, self.budget),
                "program": program,
                "program_cut": program != whole,
            },
        )

    def _facts(
        self, view: SearchView, digest: Digest, slate: Slate | None, arms: Collection[Arm]
    ) -> dict[str, Any]:
        return {
            **on_scores(view),
            "iteration": view.iter,
            "until": view.until,
            "reference": point_of(view, view.reference),
            "baseline": point_of(view, view.menu.baseline),
            "refusals": tuple(refusal_lines(view)),
            "configs": digest.configs,
            "failed": digest.failed,
            "pending": tuple(in_flight(view)),
            "slate": () if slate is None else tuple(slate_lines(view, slate)),
            "names": () if slate is None else slate.names,
            "arms": tuple(arms),
            "max_changes": view.asked_changes,
            "example": self.example(view, slate),
        }


def _frozen(view: SearchView) -> dict[str, Scalar]:
    """Return the reference's values of the knobs that nothing may change now."""
    values = view.menu.knob_values(view.reference)
    return {name: one for name, one in values.items() if name not in view.menu.open_domains}


def share_of(context: int) -> int:
    """Return the tokens of a server's context that a prompt may fill."""
    return int(context * PROMPT_SHARE)


def _sections(digest: Digest, room: int) -> dict[str, Section]:
    """Return the digest's lines in order until the first that does not fit."""
    sections = fit_lines(digest.sections, room)
    shown = sum(len(sections[name].lines) for name in ("best", "failures", "history"))
    sections["history"] = replace(sections["history"], omitted=digest.configs - shown)
    return sections


def rendered(name: str, variables: Mapping[str, Any]) -> str:
    """Return a template's text with these variables, ending in one line end."""
    return _environment().get_template(name).render(variables).strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of all templates; an undefined variable is an error."""
    folder = resources.files("proposer_prompts")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["value"] = scalar_text
    return environment
