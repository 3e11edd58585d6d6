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

A value equal to the reference's is not a change, and neither is one of a knob that does not count
beside the others. Such values are dropped before the menu is checked, so they do not count toward
``max_changes``, and the record lists them separately.
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
from trainer.schema import AnyConfig, Budget, gpt
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
        self.run_code: Callable[[AnyConfig], str] | None = None
        """Runs a config's functions in a sandbox and returns what is wrong; None: the rail is off.
        """
        self.form: Form = form

    def check(
        self, reply: str | ParsedReply | Proposal, reference: AnyConfig, tried: Container[str] = ()
    ) -> Checked:
        """Return the verdict on a reply that edits ``reference``, raw or read before.

        ``tried`` holds config hashes. No content of a reply raises an error.
        """
        try:
            if isinstance(reply, Proposal):  # from a file that others may have written
                reply = reply.model_dump_json(include={"changes", "reason"})
            if isinstance(reply, str):
                reply = read_reply(reply, self.form)
        except ReplyError as error:
            return Checked(Verdict(allowed=False, rail="schema", why=str(error)), None, None)
        domains, now = self.menu.domains, self.menu.knob_values(reference)
        changes: dict[str, Scalar] = {}
        restated: dict[str, Scalar] = {}
        for said_name, said in reply.changes.items():
            name = self._named(said_name, reply.changes)
            domain = domains.get(name)
            value = domain.coerced(said) if domain else said
            # A value outside its knob's domain is not restated, so that no refusal is hidden.
            is_same = domain and domain.contains(value) and domain.normal(value) == now[name]
            (restated if is_same else changes)[name] = value
        if changes.keys() <= domains.keys():
            idle = self.menu.idle({**now, **changes})
            for name in [n for n in changes if n in idle and domains[n].contains(changes[n])]:
                restated[name] = changes.pop(name)
        proposal = None
        # JSON carries no larger numbers.
        if all(isinstance(one, str) or abs(one) <= sys.float_info.max for one in changes.values()):
            proposal = Proposal(changes=changes, reason=reply.reason, restated=restated)
        try:
            self._check_changes(changes)
            config = self._checked_config(changes, reference, tried)
        except _RefusedError as refused:
            return Checked(refused.verdict, proposal, None)
        return Checked(Verdict(allowed=True), proposal, config)

    def _named(self, said: str, others: Container[str]) -> str:
        """Return the one knob that a name in another case means, unless it is changed as well."""
        if said in self.menu.knobs:
            return said
        folded = said.strip().casefold().replace("-", "_")
        meant = [knob for knob in self.menu.knobs if knob.casefold() == folded]
        return meant[0] if len(meant) == 1 and meant[0] not in others else said

    def _check_changes(self, changes: Mapping[str, Scalar]) -> None:
        """Refuse changes by the rails menu, range and code."""
        menu = self.menu
        for name in changes:
            if name in menu.constants:
                why = f"is fixed at {json_text(menu.constants[name])} by this menu; "
                raise _RefusedError("menu", f"{name} {why}change one of its knobs instead")
            if name in menu.ties:
                knobs = " or ".join(menu.ties[name].knobs)
                why = f"follows {knobs} in this menu ({menu.ties[name]}); change {knobs} instead"
                raise _RefusedError("menu", f"{name} {why}")
            if name not in menu.knobs:
                why = f"is not a knob of this menu{did_you_mean(name, menu.knobs)}"
                raise _RefusedError("menu", f"{json_text(name)} {why}")
            if name not in menu.open_domains:
                why = "is frozen in this campaign; change another knob"
                raise _RefusedError("menu", f"{name} {why}")
        if len(changes) > self.max_changes:
            why = f"{len(changes)} knobs are set; set at most {self.max_changes} at a time"
            raise _RefusedError("menu", why)
        for name, value in changes.items():
            clause = menu.knobs[name].why_not(value)
            if clause and name in menu.code_knobs:
                raise _RefusedError("code", clause)
            if clause:
                raise _RefusedError("range", f"{clause}; choose a value inside that domain")
            if not menu.allows(name, value):
                clause = f"{name} = {menu.open_domains[name].why_not(value)}"
                raise _RefusedError("range", f"{clause} now; choose a value inside that domain")

    def _checked_config(
        self, changes: Mapping[str, Scalar], reference: AnyConfig, tried: Container[str]
    ) -> AnyConfig:
        """Return the config, or refuse it by the rails cross, memory, novelty and code_run."""
        try:
            config = self.menu.apply(reference, changes)
        except SpecError as error:
            raise _RefusedError("cross", f"{error}; change one of them as well") from error
        if broken := self.menu.why_broken(config, self.budget):
            raise _RefusedError("cross", broken)
        predicted_gib = self.memory and self.memory.predict_gib(gpt(config))
        if self.memory and predicted_gib and predicted_gib > self.memory.limit_gib:
            raise _RefusedError(
                "memory",
                f"the config would need about {predicted_gib:.2f} GiB of the "
                f"{self.memory.limit_gib:.2f} GiB available; make the batch, the sequence or the "
                "model smaller",
            )
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
        why = self.run_code(config) if self.run_code else ""
        if why:
            raise _RefusedError("code_run", why)
        return config
