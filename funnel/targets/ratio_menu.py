"""Write a family of ratios as the text of a menu.

The ratios are knobs. A ratio that is not a field of a config has a formula that reads it back from
one. Formulas tie layers, heads and d_ff to the ratios, so that every config has the baseline's
size. The other knobs are the optimizer's, from the shipped menu of the same scale, and the form of
the schedule.
"""

import json
import re
from collections.abc import Iterator, Mapping

from agent.menu.files import ProxyMenu
from agent.menu.knobs import Constraint, Knob
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, OrderedChoices
from autoresearch.domains.ranges import RealRange
from autoresearch.options import toml_values
from autoresearch.values import Scalar
from funnel.targets.ratio_family import RatioFamily
from funnel.targets.ratios import RATIO_TOLERANCE, RATIOS, RatioName
from funnel.targets.shape import size_text
from trainer.schema import Config, gpt

KINDS: Mapping[RatioName, tuple[Scalar, ...]] = {
    "activation": ("gelu", "swiglu", "geglu", "relu2"),
    "norm": ("layernorm", "rmsnorm"),
    "norm_place": ("pre", "output", "sandwich"),
    "qk_norm": (False, True),
    "positions": ("learned", "rotary"),
    "tie_embeddings": (False, True),
}
SHAPE_FIELDS = frozenset(
    "n_layer n_head n_kv_head d_model d_ff activation norm positions tie_embeddings".split()
)
LATER = ("norm_place", "qk_norm", "rope_base")
"""Fields that older configs lack; they are written only where they differ from their defaults."""
ROPE_BASES = (1_000.0, 10_000.0, 100_000.0, 500_000.0)
LEFT_ALONE = SHAPE_FIELDS | {"precision", "seq_len"}
"""Knobs of the shipped menu that this menu omits.

The target has its own sequence length, so a gain from shorter sequences would not carry over.
"""
INIT_SCALES = (0.25, 4.0)
SCHEDULE = Knob(
    name="schedule",
    domain=Choices(choices=("cosine", "linear", "wsd")),
    default="cosine",
    doc="how the rate falls after the warm-up; short runs see its beginning, long runs all",
)


def ratio_menu_text(family: RatioFamily) -> str:
    """Return the menu as TOML."""
    base = family.base.scale.base_menu
    knobs: list[Knob] = []
    for free in family.free:
        domain, default, reads = _turned(family, free)
        ratio = RATIOS[free]
        knobs.append(
            Knob(name=ratio.knob, domain=domain, default=default, reads=reads, doc=ratio.doc)
        )
    knobs.append(SCHEDULE)
    most = gpt(base.baseline).tokens_per_step // family.seq_len
    for knob in base.knobs.values():
        if knob.name == "batch_size":
            sizes = tuple(int(value) for value in knob.domain.ends if int(value) <= most)
            knobs.append(
                knob.model_copy(update={"domain": OrderedChoices(type="int", choices=sizes)})
            )
        elif knob.name not in LEFT_ALONE:
            knobs.append(knob)
    constants = _constants(base, family, {knob.name for knob in knobs})
    own = base.campaign.model_copy(update={"tokenizer": family.base.tokenizer})
    left_out = ("device", "min_device")  # they are for the machine that the base menu is for
    campaign = {name: v for name, v in toml_values(own).items() if v and name not in left_out}
    tiny = "-tiny" if family.base.scale.is_cpu else ""
    blocks = [
        [
            f"name = {json.dumps(f'{family.target.name}{tiny}-ratios')}",
            f'doc = """\n{_doc(family)}"""',
        ],
        *(
            [
                f"[knobs.{knob.name}]",
                *knob.domain.toml_lines(),
                *_pairs({"default": knob.default}),
                *_pairs({} if knob.reads is None else {"reads": knob.reads}),
                *_pairs({} if knob.when is None else {"when": knob.when}),
                *_pairs({"doc": knob.doc}),
            ]
            for knob in knobs
        ),
        ["[tied]", *_pairs(_formulas(family))],
        ["[constants]", *_pairs(constants | {"precision": "bf16"})],
        *(
            ["[[constraints]]", *_pairs({"expr": one.expr, "doc": one.doc})]
            for one in _constraints(base, family)
        ),
        ["[campaign]", *_pairs(campaign)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _pairs(values: Mapping[str, Scalar]) -> Iterator[str]:
    # JSON strings, numbers and booleans are also valid TOML.
    return (f"{name} = {json.dumps(value)}" for name, value in values.items())


def _doc(family: RatioFamily) -> str:
    target, size, proxy = family.target, family.size, family.proxy
    held = {
        "params": f"{size.amount:,} weights in the blocks' matrices",
        "flops": f"{6 * size.amount:,} FLOPs a token, on sequences of {family.seq_len}",
    }[size.equal]
    left = [RATIOS[name].name for name in RATIOS if not family.is_free(name)]
    departures = [clause for clause in family.base.given_up() if not clause.startswith("head_dim")]
    if family.head_dim != target.head_dim:
        departures.insert(0, f"head_dim is {family.head_dim}, the target's {target.head_dim}")
    if family.base.vocab_size != target.vocab_size:
        departures.append(
            f"the vocabulary is {family.base.vocab_size}, the target's {target.vocab_size}"
        )
    longest = family.base.scale.longest_seq_len
    if longest != target.seq_len:
        departures.append(f"sequences have up to {longest} tokens, the target's {target.seq_len}")
    lines = [
        f"Shapes of {target.name} ({size_text(target.total_params)} parameters) at equal "
        f"{size.equal}: every config has {held}, but for d_ff being whole.",
        f"The baseline has the target's ratios: d_model {proxy.d_model}, n_layer {proxy.n_layer}, "
        f"{size_text(family.params)} parameters with the vocabulary of {family.base.tokenizer} "
        f"({family.base.vocab_size} ids).",
        f"Searched: {', '.join(family.free) or 'none'}. Left as the target has it: "
        f"{', '.join(left) or 'none'}.",
        f"Not kept: {'; '.join(departures)}.",
    ]
    return "\n".join(lines)


# --- knobs --------------------------------------------------------------------------------------


def _turned(family: RatioFamily, name: RatioName) -> tuple[Domain, Scalar, str | None]:
    """Return a ratio's domain, its default and, if it is not a field, its formula."""
    target, proxy, size = family.target, family.proxy, family.size
    bases = tuple(sorted({*ROPE_BASES, target.rope_base}))
    low, high = INIT_SCALES
    numbers: dict[RatioName, tuple[Domain, Scalar, str | None]] = {
        "depth_width": (OrderedChoices(type="int", choices=family.widths), proxy.d_model, None),
        "head_dim": (
            OrderedChoices(type="int", choices=family.head_dims),
            family.head_dim,
            "d_model / n_head",
        ),
        "kv_group": (
            OrderedChoices(type="int", choices=family.kv_groups),
            family.kv_group,
            "n_head / n_kv_head",
        ),
        "ffn_ratio": (
            OrderedChoices(choices=family.ffn_ratios),
            family.ffn_ratio,
            size.ratio_formula(),
        ),
        "rope_base": (OrderedChoices(choices=bases), target.rope_base, None),
        "init_scale": (RealRange(low=low, high=high, scale="log"), 1.0, None),
    }
    if name in numbers:
        return numbers[name]
    return Choices(choices=KINDS[name]), getattr(target, name), None


def _constants(base: ProxyMenu, family: RatioFamily, turned: set[str]) -> dict[str, Scalar]:
    """Return the fields that are neither knobs nor tied, without those at their defaults."""
    target, proxy = family.target, family.proxy
    sizes: dict[str, Scalar] = {
        "n_layer": proxy.n_layer,
        "n_head": proxy.n_head,
        "n_kv_head": proxy.kv_heads,
        "d_ff": proxy.d_ff,
    }
    fields = {name: value for name, value in sizes.items() if not _follows(family, name)}
    fields["d_model"] = proxy.d_model
    for name in ("activation", "norm", "positions", "tie_embeddings", *LATER):
        if name not in LATER or getattr(target, name) != Config.model_fields[name].default:
            fields[name] = getattr(target, name)
    values = {name: value for name, value in base.constants.items() if name not in SHAPE_FIELDS}
    values["seq_len"] = family.seq_len
    return values | {name: value for name, value in fields.items() if name not in turned}


# --- ties and constraints -----------------------------------------------------------------------


def _term(family: RatioFamily, name: RatioName, fixed: float) -> str:
    """Return a ratio's knob, or its number if it has none."""
    return name if family.is_free(name) else f"{fixed:.15g}"


def _formulas(family: RatioFamily) -> dict[str, Scalar]:
    group = _term(family, "kv_group", family.kv_group)
    activation = None if family.is_free("activation") else family.target.activation
    formulas = {
        "n_layer": family.size.layers_formula(_term(family, "ffn_ratio", family.ffn_ratio)),
        "n_head": f"d_model / {_term(family, 'head_dim', family.head_dim)}",
        "n_kv_head": f"n_head / {group}",
        "d_ff": family.size.d_ff_formula(group, activation),
    }
    return {name: formula for name, formula in formulas.items() if _follows(family, name)}


def _follows(family: RatioFamily, field: str) -> bool:
    """Return whether a field depends on any knob; if not, it is a constant."""
    by: dict[str, tuple[RatioName, ...]] = {
        "n_layer": ("depth_width", "ffn_ratio"),
        "n_head": ("depth_width", "head_dim"),
        "n_kv_head": ("depth_width", "head_dim", "kv_group"),
        "d_ff": ("depth_width", "ffn_ratio", "kv_group", "activation"),
    }
    return any(family.is_free(name) for name in by[field])


def _constraints(base: ProxyMenu, family: RatioFamily) -> Iterator[Constraint]:
    # Those of the base menu on its shape and on the tokens of a step do not hold here.
    for constraint in base.constraints:
        if not (SHAPE_FIELDS | {"batch_size"}) & set(re.findall(r"\w+", constraint.expr)):
            yield constraint
    if family.is_free("kv_group") or family.is_free("head_dim"):
        head_dim = _term(family, "head_dim", family.head_dim)
        group = _term(family, "kv_group", family.kv_group)
        yield Constraint(
            expr=f"d_model % ({head_dim} * {group}) == 0", doc="heads and KV heads are whole"
        )
    if family.is_free("ffn_ratio") or family.is_free("depth_width"):
        ratio = _term(family, "ffn_ratio", family.ffn_ratio)
        left, bound = family.size.ratio_formula(), 1 + RATIO_TOLERANCE
        yield Constraint(
            expr=f"{ratio} / {bound:g} <= {left} <= {ratio} * {bound:g} and n_layer >= 2",
            doc="some whole number of layers leaves room for the ratio",
        )
    if family.is_free("rope_base") and (
        family.is_free("positions") or family.target.positions == "learned"
    ):
        usual = f"{family.target.rope_base:.15g}"
        yield Constraint(
            expr=f'positions == "rotary" or rope_base == {usual}', doc="learned ones have no base"
        )
