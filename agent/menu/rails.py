"""Check proposals: the rails between a proposer's reply and a config that may be trained.

Eight checks run in a fixed order, the first refusal wins, and none of them asks a model:

    schema    exactly one JSON object with exactly ``changes`` and ``reason``
    menu      knobs of the menu, neither constants nor tied fields, and no more than
              ``max_changes`` of them
    range     each value in its knob's domain, converted to its type if that loses nothing:
              an int knob takes 4.0 and "4" as 4, but neither true nor 4.5
    code      the source of each code knob by the static rails (:mod:`trainer.code.statics`)
    cross     the menu's constraints, and the trainer's own checks of a whole config
    memory    the predicted peak within the device's limit; off if unknown
    novelty   a config not yet tried, and not the reference itself
    code_run  the functions of a new config, run on small tensors in a sandbox, if a check is given

A value equal to the reference's is not a change. Such values are dropped before the menu is
checked, so they do not count toward ``max_changes``, and the record lists them separately.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.menu.files import ProxyMenu
from agent.menu.replies import Form, ParsedReply, read_reply
from agent.menu.reply_objects import ReplyError
from autoresearch.errors import MenuError, SpecError
from autoresearch.values import Scalar
from autoresearch.words import did_you_mean, json_text
from trainer.spec import AnyConfig, Budget, Config, gpt
from trajectory.proposals import Proposal, RailName, Verdict

if TYPE_CHECKING:
    from trainer.memory.estimate import AnalyticMemory


@dataclass(frozen=True, slots=True)
class Checked:
    """A verdict and its subject."""

    verdict: Verdict
    proposal: Proposal | None
    """None if the reply held no proposal that could be recorded."""
    config: AnyConfig | None
    """Config to train; None if the verdict refuses it."""


class _RefusedError(Exception):
    """Ends the checks at the first refusal."""

    def __init__(self, rail: RailName, why: str) -> None:
        super().__init__(why)
        self.verdict = Verdict(allowed=False, rail=rail, why=why)


class Rails:
    """Stateless checks of one campaign: equal inputs give equal verdicts."""

    def __init__(
        self,
        menu: ProxyMenu,
        *,
        budget: Budget,
        max_changes: int | None = None,
        memory: AnalyticMemory | None = None,
        form: Form = "changes",
    ) -> None:
        """Check the menu under this budget.

        :param max_changes: most knobs that a proposal may change; None: all.
        :param form: form of the replies; the loop asks for changes.
        :raises MenuError: if the menu's own defaults break a constraint under this budget, so that
            no proposal could pass.
        """
        broken = menu.why_broken(menu.baseline, budget)
        if broken is not None:
            raise MenuError(f"menu {menu.name} cannot run for {budget}: {broken}")
        self.menu = menu
        self.budget = budget
        self.max_changes = len(menu.knobs) if max_changes is None else max_changes
        self.memory = memory
        self.run_code: Callable[[Config], str] | None = None
        """Runs a config's functions in a sandbox and returns what is wrong; None: the rail is off.
        """
        self.form: Form = form

    def check(self, raw: str, reference: AnyConfig, tried: Container[str] = ()) -> Checked:
        """Return the verdict on a raw reply that edits ``reference``.

        ``tried`` holds config hashes. No content of a reply raises an error.
        """
        try:
            reply = read_reply(raw, self.form).coerced(self.menu.domains)
        except ReplyError as error:
            return Checked(Verdict(allowed=False, rail="schema", why=str(error)), None, None)
        domains, now = self.menu.domains, self.menu.knob_values(reference)
        # A value outside its knob's domain is not restated, so that no refusal is hidden.
        restated = {
            name: value
            for name, value in reply.changes.items()
            if name in domains
            and domains[name].contains(value)
            and domains[name].normal(value) == now[name]
        }
        reply = reply.without(restated)
        try:
            self._menu(reply.changes)
            self._range(reply.changes)
            config = self._cross(reply.changes, reference)
            self._memory(config)
            self._novelty(config, reference, tried)
            self._code_run(config)
        except _RefusedError as refused:
            return Checked(refused.verdict, _proposal(reply, restated), None)
        return Checked(Verdict(allowed=True), _proposal(reply, restated), config)

    def _menu(self, changes: Mapping[str, Scalar]) -> None:
        for name in changes:
            if name in self.menu.constants:
                fixed = json_text(self.menu.constants[name])
                raise _RefusedError(
                    "menu",
                    f"{name} is fixed at {fixed} by this menu; change one of its knobs instead",
                )
            if name in self.menu.ties:
                tie = self.menu.ties[name]
                knobs = " or ".join(tie.knobs)
                raise _RefusedError(
                    "menu", f"{name} follows {knobs} in this menu ({tie}); change {knobs} instead"
                )
            if name not in self.menu.knobs:
                near = did_you_mean(name, self.menu.knobs)
                raise _RefusedError("menu", f"{json_text(name)} is not a knob of this menu{near}")
        if len(changes) > self.max_changes:
            raise _RefusedError(
                "menu",
                f"{len(changes)} knobs are set; set at most {self.max_changes} at a time",
            )

    def _range(self, changes: Mapping[str, Scalar]) -> None:
        for name, value in changes.items():
            clause = self.menu.knobs[name].why_not(value)
            if clause and name in self.menu.code_knobs:
                raise _RefusedError("code", clause)
            if clause:
                raise _RefusedError("range", f"{clause}; choose a value inside that domain")

    def _cross(self, changes: Mapping[str, Scalar], reference: AnyConfig) -> AnyConfig:
        try:
            config = self.menu.apply(reference, changes)
        except SpecError as error:
            raise _RefusedError("cross", f"{error}; change one of them as well") from error
        if broken := self.menu.why_broken(config, self.budget):
            raise _RefusedError("cross", broken)
        return config

    def _memory(self, config: AnyConfig) -> None:
        if self.memory is None:
            return
        predicted_gib, limit_gib = self.memory.predict_gib(gpt(config)), self.memory.limit_gib
        if predicted_gib is not None and predicted_gib > limit_gib:
            raise _RefusedError(
                "memory",
                f"the config would need about {predicted_gib:.2f} GiB of the {limit_gib:.2f} GiB "
                "available; make the batch, the sequence or the model smaller",
            )

    def _code_run(self, config: AnyConfig) -> None:
        if self.run_code is None or not isinstance(config, Config):
            return
        if why := self.run_code(config):
            raise _RefusedError("code_run", why)

    def _novelty(self, config: AnyConfig, reference: AnyConfig, tried: Container[str]) -> None:
        if config == reference:
            raise _RefusedError(
                "novelty",
                "the proposal changes nothing: every value is already the reference's"
                "; set at least one knob to another value",
            )
        if config.config_hash in tried:
            raise _RefusedError(
                "novelty",
                f"the config {config.config_hash[:12]} was already tried; change another knob or "
                "choose another value",
            )


def _proposal(reply: ParsedReply, restated: Mapping[str, Scalar]) -> Proposal | None:
    """Return the reply as the journal stores it; None if it holds a number that JSON cannot
    carry."""
    numbers = [value for value in reply.changes.values() if isinstance(value, int | float)]
    if not all(abs(number) <= sys.float_info.max for number in numbers):
        return None
    return Proposal(changes=reply.changes, reason=reply.reason, restated=dict(restated))
