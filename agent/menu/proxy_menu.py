"""Define the ProxyMenu: which fields of a config proposals may change, how far, and what is fixed.

Every valid menu can be trained at its defaults; others are refused at construction. A menu with a
``[trainer]`` (:mod:`agent.menu.trainer_table`) has configs of its own knobs and constants. All
others have the fields of the built-in trainer's Config.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from random import Random
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, InstanceOf, model_validator

from agent.menu.code_knob import CodeKnob, check_stated
from agent.menu.expressions import Expression, ExpressionError
from agent.menu.knobs import BUDGET_STEPS, Constraint, Knob, MenuScalar, Reading, Tie
from agent.menu.promises import check_command, check_names, check_readings, check_values
from agent.menu.trainer_table import TrainerTable
from autoresearch.domains.base import Domain
from autoresearch.errors import SpecError
from autoresearch.values import Frozen, PlainText, Positive, PositiveInt, Scalar
from autoresearch.words import json_text
from trainer.schema import (
    BPB,
    AnyConfig,
    Budget,
    CommandConfig,
    Measure,
    MemoryGib,
    RunSchedule,
    gpt,
    make_config,
)


class CampaignDefaults(RunSchedule):
    """Default settings of a campaign with this menu."""

    model_config = ConfigDict(strict=True)

    corpus: PlainText = "stdlib"
    tokenizer: PlainText = "bytes"
    heldout_bytes: PositiveInt = 131072
    device: Literal["cpu", "cuda"] | None = None
    """Device that ``--device auto`` chooses; None: CUDA if it works, else the CPU."""
    min_device: Literal["cpu", "cuda"] = "cpu"
    """With "cuda", a campaign does not start on a CPU unless ``--device cpu`` is given."""
    wall_s: Positive | None = None
    """Time limit of one trial; None: the settings' own default."""
    memory_gib: MemoryGib | None = None
    threads: PositiveInt | None = None


class ProxyMenu(Frozen):
    """A fully checked menu: its baseline can be trained and meets its constraints."""

    name: str
    doc: PlainText = ""
    knobs: Mapping[str, InstanceOf[Knob]]
    """Knobs by name, in the file's order."""
    tied: Mapping[str, str] = {}
    """Formulas of the fields that follow the knobs, by field."""
    constants: Mapping[str, MenuScalar]
    constraints: tuple[Constraint, ...] = ()
    campaign: CampaignDefaults = CampaignDefaults()
    trainer: TrainerTable | None = None
    """Command that trains its configs; None: the built-in trainer."""
    narrowed: Mapping[str, InstanceOf[Domain] | None] = Field({}, exclude=True)
    """What proposals may set, of each knob that was edited during a campaign; None: nothing. The
    knob's own domain still has the values of all earlier configs."""
    toml: str
    """The exact text it was read from."""

    @model_validator(mode="after")
    def _keeps_its_promises(self) -> Self:
        try:
            if self.trainer is not None:
                check_command(
                    self.trainer, self.knobs, self.tied, self.constants, self.campaign.budget
                )
            else:
                check_names(self.knobs, self.tied, self.constants)
                complete = self._fields({**self.constants, **self.defaults})
                check_values(self.knobs, self.constants, complete)
                check_readings(self.knobs, self.readings, gpt(self.baseline))
                for knob in self.code_knobs.values():
                    check_stated(knob, gpt(self.baseline))
            broken = self.why_broken(self.baseline, self.campaign.budget)
        except SpecError as error:
            raise ValueError(f"its defaults are inconsistent: {error}; change one") from error
        if broken is not None:
            raise ValueError(f"its defaults are inconsistent: {broken}")
        return self

    @property
    def measure(self) -> Measure:
        """Unit of its configs' scores."""
        return BPB if self.trainer is None else self.trainer.measure

    @property
    def sha256(self) -> str:
        """SHA-256 of the TOML text, in hexadecimal."""
        return hashlib.sha256(self.toml.encode()).hexdigest()

    @property
    def content(self) -> str:
        """The TOML's content as canonical JSON, independent of comments, formatting and key order,
        and without the defaults of new campaigns."""
        said = tomllib.loads(self.toml)
        said.pop("campaign", None)
        return json.dumps(said, sort_keys=True, default=str)

    @property
    def content_sha256(self) -> str:
        """SHA-256 of :attr:`content`, in hexadecimal."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    @cached_property
    def baseline(self) -> AnyConfig:
        """Config with every knob at its default."""
        return self._config({**self.constants, **self.defaults})

    @property
    def defaults(self) -> dict[str, Scalar]:
        """Default of every knob, in the menu's order."""
        return {name: knob.default for name, knob in self.knobs.items()}

    @cached_property
    def code_knobs(self) -> Mapping[str, CodeKnob]:
        """Knobs whose value is the source of a function, in the menu's order."""
        return {name: knob for name, knob in self.knobs.items() if isinstance(knob, CodeKnob)}

    @cached_property
    def domains(self) -> Mapping[str, Domain]:
        """Domain of every knob, in the menu's order."""
        return {name: knob.domain for name, knob in self.knobs.items()}

    @cached_property
    def ties(self) -> Mapping[str, Tie]:
        """Tied fields by name, in the file's order."""
        ties: dict[str, Tie] = {}
        names = {*self.constants, *self.knobs}
        for name, formula in self.tied.items():
            try:
                ties[name] = Tie.parse(
                    name, formula, names, self.knobs, ties, of_config=self.trainer is None
                )
            except ExpressionError as error:
                raise ValueError(f"tied {name} = {json_text(formula)}: {error}") from error
        return ties

    @cached_property
    def readings(self) -> Mapping[str, Reading]:
        """Readings of the knobs that are not fields of a config, by name."""
        return {
            name: Reading.of(knob) for name, knob in self.knobs.items() if knob.reads is not None
        }

    @cached_property
    def conditions(self) -> Mapping[str, Expression]:
        """Condition of every knob that does not always count, in the menu's order."""
        conditions: dict[str, Expression] = {}
        later = {name for name, knob in self.knobs.items() if knob.when is not None}
        for name, knob in self.knobs.items():
            if knob.when is None:
                continue
            try:
                # A knob that may not count itself must come first.
                known = {*self.constants, *self.knobs} - later
                conditions[name] = Expression.parse(knob.when, known)
                conditions[name].holds({**self.constants, **self.defaults})
            except ExpressionError as error:
                raise ValueError(f"knob {name}: when = {json_text(knob.when)}: {error}") from error
            later.remove(name)
        return conditions

    @cached_property
    def open_domains(self) -> Mapping[str, Domain]:
        """What proposals may set: the domain of every knob that is not frozen."""
        narrowed = {name: self.narrowed.get(name, domain) for name, domain in self.domains.items()}
        return {name: domain for name, domain in narrowed.items() if domain is not None}

    def allows(self, name: str, value: Scalar) -> bool:
        """Return whether no edit of the menu forbids proposals to set a knob to this value."""
        domain = self.open_domains.get(name)
        return name not in self.narrowed or (domain is not None and domain.contains(value))

    def idle(self, values: Mapping[str, Scalar]) -> set[str]:
        """Return the knobs that do not count beside these values of all knobs."""
        settled, idle = {**self.constants, **values}, set()
        for name, condition in self.conditions.items():
            if condition.problem(settled):
                settled[name] = self.knobs[name].default
                idle.add(name)
        return idle

    def settled(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return these values of all knobs, with the default of each that does not count."""
        idle = self.idle(values)
        return {n: self.knobs[n].default if n in idle else one for n, one in values.items()}

    def knob_value(self, config: AnyConfig, name: str) -> Scalar:
        """Return the config's value of one knob of this menu."""
        if name in self.readings:
            return self.readings[name].value(gpt(config))
        return self.domains[name].normal(config.value(name))

    def knob_values(self, config: AnyConfig) -> dict[str, Scalar]:
        """Return the config's values of this menu's knobs, in the menu's order."""
        return {name: self.knob_value(config, name) for name in self.knobs}

    def apply(self, reference: AnyConfig, changes: Mapping[str, Scalar]) -> AnyConfig:
        """Return the reference with these knobs of the menu set, and with their tied fields.

        :raises SpecError: if the trainer could not run the config, or if a ratio is impossible:
            tied fields are whole, and the nearest whole ones may belong to another of its values.
        """
        normal = {name: self.domains[name].normal(value) for name, value in changes.items()}
        ratios = {name: self.knob_value(reference, name) for name in self.readings}
        config = self._config({**reference.said, **ratios, **normal})
        for name, ratio in ratios.items():
            wanted, found = normal.get(name, ratio), self.knob_value(config, name)
            if wanted != found:
                raise SpecError(
                    f"{name} = {json_text(wanted)} is impossible there: the nearest whole shape "
                    f"has {json_text(found)}"
                )
        return config

    def broken_constraint(self, config: AnyConfig, budget: Budget) -> Constraint | None:
        """Return the first constraint that is false, or has no value, for a config."""
        values = self._values(config, budget)
        for constraint, expression in self._expressions.items():
            # The budget's steps may be unknown.
            if expression.names <= values.keys() and expression.problem(values):
                return constraint
        return None

    def why_broken(self, config: AnyConfig, budget: Budget) -> str | None:
        """Return one sentence about the first broken constraint, or None."""
        broken = self.broken_constraint(config, budget)
        if broken is None:
            return None
        values, expression = self._values(config, budget), self._expressions[broken]
        used = [name for name in values if name in expression.names]
        turnable = dict.fromkeys(
            knob
            for name in used
            for knob in (self.ties[name].knobs if name in self.ties else (name,))
            if knob in self.knobs
        )
        fix = f"change {' or '.join(turnable)}" if turnable else "remove it"
        doc = broken.doc.strip().rstrip(".")
        problem = f"{expression.problem(values)}{f' ({doc})' if doc else ''}"
        return f"the constraint {broken.expr.strip()} {problem}; {fix}"

    def unchecked(self, budget: Budget) -> tuple[Constraint, ...]:
        """Return the constraints that cannot be checked because the budget's steps are unknown."""
        if budget.steps(1) is not None:
            return ()
        return tuple(one for one, each in self._expressions.items() if BUDGET_STEPS in each.names)

    def satisfied_share(
        self, budget: Budget, *, max_changes: int | None = None, draws: int = 2000
    ) -> float:
        """Return the share of random configs that the trainer and the constraints accept.

        Configs are drawn over the whole menu, or with at most ``max_changes`` knobs of the baseline
        changed. The draws are always the same.
        """
        rng = Random(0)
        names = list(self.knobs)
        satisfied = 0
        for _ in range(draws):
            turned = names
            if max_changes is not None:
                turned = rng.sample(names, rng.randint(1, min(max_changes, len(names))))
            changes = {name: self.domains[name].draw(rng) for name in turned}
            try:
                config = self.apply(self.baseline, changes)
            except SpecError:
                continue
            satisfied += self.broken_constraint(config, budget) is None
        return satisfied / draws

    def _config(self, values: Mapping[str, Scalar | None]) -> AnyConfig:
        """Return the config of these knobs and constants, with tied fields."""
        try:
            if self.trainer is not None:
                return CommandConfig(values=self._fields(values))
            return make_config(self._fields(values))
        except SpecError as error:
            said = [
                str(tie) for tie in self.ties.values() if re.search(rf"\b{tie.name}\b", str(error))
            ]
            if not said:
                raise
            raise SpecError(f"{error} (tied: {', '.join(said)})") from error

    def _fields(self, values: Mapping[str, Scalar | None]) -> dict[str, Any]:
        """Return the fields of a config that have a value, tied ones included."""
        known = {name: value for name, value in values.items() if value is not None}
        if self.conditions:
            known.update(
                self.settled({name: known.get(name, self.defaults[name]) for name in self.knobs})
            )
        for name, tie in self.ties.items():
            known[name] = tie.value(known)
        return {name: value for name, value in known.items() if name not in self.readings}

    @cached_property
    def _expressions(self) -> Mapping[Constraint, Expression]:
        names = {*self.constants, *self.knobs, *self.tied, BUDGET_STEPS}
        parsed = {}
        for one in self.constraints:
            try:
                parsed[one] = Expression.parse(one.expr, names)
            except ExpressionError as error:
                raise ValueError(f"constraint {json_text(one.expr)}: {error}") from error
        return parsed

    def _values(self, config: AnyConfig, budget: Budget) -> dict[str, Scalar]:
        """Return what constraints may use, without the budget's steps if they are unknown."""
        tied = {name: config.value(name) for name in self.tied}
        values: dict[str, Scalar] = {**self.constants, **self.knob_values(config), **tied}
        steps = budget.steps(config.tokens_per_step)
        return values if steps is None else {**values, BUDGET_STEPS: steps}
