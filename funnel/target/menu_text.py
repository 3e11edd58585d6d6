"""Write a proxy family as the text of a menu, and check how far any menu keeps a target's shape.

The width is a knob and formulas tie the rest of the shape to it, so every proposal keeps the shape.
The hyperparameter knobs, their domains and the campaign's settings are those of the shipped menu of
the same scale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from agent.menu.files import ProxyMenu, load_menu
from agent.menu.formulas import Constraint
from agent.menu.knob import Knob
from autoresearch.domains.choices import Ladder
from autoresearch.errors import SpecError
from autoresearch.options import toml_values
from autoresearch.values import Scalar
from funnel.target.architecture import TargetArchitecture
from funnel.target.proxies import ProxyFamily, Scale
from funnel.target.shape import Shape, size_text
from trainer.spec import Config, gpt

SHAPE_FIELDS = frozenset(
    "n_layer n_head n_kv_head d_model d_ff activation norm positions tie_embeddings".split()
)


def longest_seq_len(scale: Scale) -> int:
    """Return the longest sequence that the scale's menu trains on, in tokens."""
    return max(int(value) for value in load_menu(scale.menu).domains["seq_len"].ends)


def menu_text(family: ProxyFamily) -> str:
    """Return the menu as TOML."""
    base = load_menu(family.scale.menu)
    has_width = len(family.proxies) > 1
    knobs = [knob for knob in base.knobs.values() if knob.name not in SHAPE_FIELDS | {"precision"}]
    constants: dict[str, Scalar] = {
        name: value for name, value in base.constants.items() if name not in SHAPE_FIELDS
    }
    constants |= {
        name: getattr(family.shape, name)
        for name in ("activation", "norm", "positions", "tie_embeddings")
    }
    # These fields are written only if they differ from a config's defaults.
    constants |= {
        name: getattr(family.shape, name)
        for name in ("qk_norm", "norm_place", "rope_base")
        if getattr(family.shape, name) != Config.model_fields[name].default
    }
    constants["precision"] = "bf16"
    if has_width:
        knobs.insert(
            0,
            Knob(
                name="d_model",
                domain=Ladder(type="int", choices=tuple(proxy.d_model for proxy in family.proxies)),
                default=family.default.d_model,
                doc="width of the residual stream; layers, heads and d_ff follow it",
            ),
        )
    else:
        proxy = family.default
        constants |= {
            "d_model": proxy.d_model,
            "n_layer": proxy.n_layer,
            "n_head": proxy.n_head,
            "d_ff": proxy.d_ff,
        }
        if family.shape.group > 1:
            constants["n_kv_head"] = proxy.kv_heads
    name = f"{family.target.name}-{'tiny' if family.scale.is_cpu else 'proxy'}"
    blocks = [
        [f"name = {json.dumps(name)}", f"doc = {text_lines(_doc(family))}"],
        *(knob_lines(knob) for knob in knobs),
        table_lines("tied", _formulas(family)) if has_width else [],
        table_lines("constants", constants),
        *(constraint_lines(one) for one in _constraints(base, family)),
        table_lines("campaign", campaign_defaults(base, family.tokenizer)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


# --- content ------------------------------------------------------------------------------------


def _doc(family: ProxyFamily) -> str:
    target, shape = family.target, family.shape
    heads = f"{shape.group} heads to a KV head" if shape.group > 1 else "a KV head to each head"
    sizes = ", ".join(
        f"{size_text(family.params(proxy))} at d_model {proxy.d_model} and n_layer {proxy.n_layer}"
        for proxy in family.proxies
    )
    lines = [
        f"Proxies of {target.name} ({size_text(target.total_params)} parameters).",
        f"Kept whatever the width: head_dim {shape.head_dim}, {heads}, d_ff {shape.ffn_ratio} of "
        f"d_model, n_layer {target.n_layer} for d_model {target.d_model} (rounded), "
        f"{shape.activation}, {shape.norm}, {shape.positions} positions, "
        f"{'tied' if shape.tie_embeddings else 'untied'} embeddings.",
        f"Parameters, with the vocabulary of {family.tokenizer} ({family.vocab_size} ids): "
        f"{sizes}.",
        f"Not kept: {'; '.join([*family.given_up(), *text_side(family)])}.",
    ]
    return "\n".join(lines)


def text_side(family: ProxyFamily) -> Iterator[str]:
    """Yield the differences from the target's vocabulary and sequence length, in words."""
    target = family.target
    if family.vocab_size != target.vocab_size:
        yield f"the vocabulary is {family.vocab_size}, the target's {target.vocab_size}"
    if family.seq_len != target.seq_len:
        yield f"sequences have up to {family.seq_len} tokens, the target's {target.seq_len}"


def _formulas(family: ProxyFamily) -> dict[str, Scalar]:
    shape = family.shape
    depth = shape.depth_ratio
    if any(proxy.depth_ratio != depth for proxy in family.proxies):
        # Round half up, as Proxy.of does.
        half = depth.denominator
        layers = f"({2 * depth.numerator} * d_model + {half}) // {2 * half}"
    else:
        layers = _times(depth)
    formulas: dict[str, Scalar] = {"n_layer": layers, "n_head": _times(Fraction(1, shape.head_dim))}
    if shape.group > 1:
        formulas["n_kv_head"] = _times(Fraction(1, shape.head_dim * shape.group))
    return formulas | {"d_ff": _times(shape.ffn_ratio)}


def _times(ratio: Fraction) -> str:
    """Return a formula such as ``d_model * 7 / 2``.

    It uses / instead of //, so that a result that is not whole is refused, not truncated.
    """
    by = f" * {ratio.numerator}" if ratio.numerator != 1 else ""
    return f"d_model{by}{f' / {ratio.denominator}' if ratio.denominator != 1 else ''}"


def _constraints(base: ProxyMenu, family: ProxyFamily) -> Iterator[Constraint]:
    """Yield the base menu's constraints except those on its shape, and some on a step's cost."""
    yield from own_constraints(base)
    tokens = base.baseline.tokens_per_step
    yield Constraint(
        expr=f"batch_size * seq_len <= {tokens}",
        doc="the budget is in steps: a better recipe must not win by training on more tokens",
    )
    default = family.default.d_model
    if default < family.proxies[-1].d_model:
        yield Constraint(
            expr=f"batch_size * seq_len * d_model ** 3 <= {tokens} * {default} ** 3",
            doc="nor by a wider model: the blocks' arithmetic grows with the cube of the width",
        )


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
            said.append(
                f"{self.departing_share:.1%} of random configs leave the shape of {name}; see: "
                f"autoresearch menu from-target {name} --keep-shape"
            )
        return said
