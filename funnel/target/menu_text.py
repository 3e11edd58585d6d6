"""Write the parts of a menu as text, and check how far a menu keeps a target's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from agent.menu.files import ProxyMenu, load_menu
from agent.menu.formulas import Constraint
from agent.menu.knob import Knob
from autoresearch.errors import SpecError
from autoresearch.options import toml_values
from autoresearch.values import Scalar
from funnel.target.architecture import TargetArchitecture
from funnel.target.proxies import Scale
from funnel.target.shape import Shape
from trainer.spec import gpt

SHAPE_FIELDS = frozenset(
    "n_layer n_head n_kv_head d_model d_ff activation norm positions tie_embeddings".split()
)


def longest_seq_len(scale: Scale) -> int:
    """Return the longest sequence that the scale's menu trains on, in tokens."""
    return max(int(value) for value in load_menu(scale.menu).domains["seq_len"].ends)


def own_constraints(base: ProxyMenu) -> Iterator[Constraint]:
    """Yield the base menu's constraints except those on its shape and on the tokens of a step."""
    for constraint in base.constraints:
        if not (SHAPE_FIELDS | {"batch_size"}) & set(re.findall(r"\w+", constraint.expr)):
            yield constraint


def campaign_defaults(base: ProxyMenu, tokenizer: str) -> dict[str, Scalar]:
    """Return the base menu's campaign settings with this tokenizer."""
    own = base.campaign.model_copy(update={"tokenizer": tokenizer})
    left_out = ("device", "min_device")  # they are for the machine that the base menu is for
    return {name: v for name, v in toml_values(own).items() if v and name not in left_out}


# --- TOML ---------------------------------------------------------------------------------------


def table_lines(name: str, values: Mapping[str, Scalar]) -> list[str]:
    """Return the lines of a TOML table."""
    return [f"[{name}]", *_pairs(values)]


def _pairs(values: Mapping[str, Scalar]) -> Iterable[str]:
    # JSON strings, numbers and booleans are also valid TOML.
    return (f"{name} = {json.dumps(value)}" for name, value in values.items())


def knob_lines(knob: Knob) -> list[str]:
    """Return the lines of a knob's table."""
    return [
        f"[knobs.{knob.name}]",
        *knob.domain.toml_lines(),
        f"default = {json.dumps(knob.default)}",
        *([] if knob.reads is None else [f"reads = {json.dumps(knob.reads)}"]),
        f"doc = {json.dumps(knob.doc)}",
    ]


def constraint_lines(constraint: Constraint) -> list[str]:
    """Return the lines of a constraint's table."""
    return ["[[constraints]]", *_pairs({"expr": constraint.expr, "doc": constraint.doc})]


def text_lines(text: str) -> str:
    """Return a multi-line TOML string; the text must not need escapes."""
    return f'"""\n{text}"""'


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """Differences between a menu's shapes and the target's."""

    at_defaults: tuple[str, ...]
    """Differences between the shape of the menu's baseline and the target's, in words."""
    departing_share: float
    """Share of trainable random configs whose shape differs from the target's."""

    @classmethod
    def of(cls, menu: ProxyMenu, target: TargetArchitecture, *, draws: int = 500) -> ShapeCheck:
        """Check the menu's baseline and random configs, which are the same on every call.

        :param draws: number of random configs.
        """
        wanted = Shape.of(target)
        rng = Random(0)
        departing = trainable = 0
        for _ in range(draws):
            changes = {name: domain.draw(rng) for name, domain in menu.domains.items()}
            try:
                config = gpt(menu.apply(menu.baseline, changes))
            except SpecError:
                continue
            trainable += 1
            departing += any(Shape.of(config).departures(wanted))
        return cls(
            at_defaults=tuple(Shape.of(gpt(menu.baseline)).departures(wanted)),
            departing_share=departing / trainable if trainable else 1.0,
        )

    def warnings(self, name: str) -> list[str]:
        """Return one sentence per difference of the baseline, and one about random configs.

        :param name: the target's name.
        """
        said = [f"the defaults leave the shape of {name}: {clause}" for clause in self.at_defaults]
        if self.departing_share:
            said.append(f"{self.departing_share:.1%} of random configs leave the shape of {name}")
        return said
