"""Write a family of ratios as the text of a menu.

The ratios are knobs. A ratio that is not a field of a config has a formula that reads it back from
one. Formulas tie layers, heads and d_ff to the ratios, so that every config has the baseline's
size. The other knobs are the optimizer's, from the shipped menu of the same scale, and the form of
the schedule.
"""

import json
from collections.abc import Iterator, Mapping

from agent.menu.files import ProxyMenu, load_menu
from agent.menu.formulas import Constraint
from agent.menu.knob import Knob
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import RealRange
from autoresearch.values import Scalar
from funnel.target.equal_size import RATIO_TOLERANCE
from funnel.target.menu_text import (
    SHAPE_FIELDS,
    campaign_defaults,
    constraint_lines,
    knob_lines,
    longest_seq_len,
    own_constraints,
    table_lines,
    text_lines,
)
from funnel.target.ratio_family import RatioFamily
from funnel.target.ratios import RATIOS, RatioName
from funnel.target.shape import size_text
from trainer.spec import gpt

KINDS: Mapping[RatioName, tuple[Scalar, ...]] = {
    "activation": ("gelu", "swiglu", "geglu", "relu2"),
    "norm": ("layernorm", "rmsnorm"),
    "norm_place": ("pre", "output", "sandwich"),
    "qk_norm": (False, True),
    "positions": ("learned", "rotary"),
    "tie_embeddings": (False, True),
}
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
    base = load_menu(family.base.scale.menu)
    knobs: list[Knob] = []
    for free in family.free:
        domain, default, reads = _turned(family, free)
        ratio = RATIOS[free]
        knobs.append(
            Knob(name=ratio.knob, domain=domain, default=default, reads=reads, doc=ratio.doc)
        )
    knobs.append(SCHEDULE)
    most = gpt(base.baseline).tokens_per_step // _seq_len(family)
    for knob in base.knobs.values():
        if knob.name == "batch_size":
            sizes = tuple(int(value) for value in knob.domain.ends if int(value) <= most)
            knobs.append(knob.model_copy(update={"domain": Ladder(type="int", choices=sizes)}))
        elif knob.name not in LEFT_ALONE:
            knobs.append(knob)
    constants = _constants(base, family, {knob.name for knob in knobs})
    constants["precision"] = "bf16"
    tiny = "-tiny" if family.base.scale.is_cpu else ""
    name = f"{family.target.name}{tiny}-ratios"
    blocks = [
        [f"name = {json.dumps(name)}", f"doc = {text_lines(_doc(family))}"],
        *(knob_lines(knob) for knob in knobs),
        table_lines("tied", _formulas(family)),
        table_lines("constants", constants),
        *(constraint_lines(one) for one in _constraints(base, family)),
        table_lines("campaign", campaign_defaults(base, family.base.tokenizer)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _doc(family: RatioFamily) -> str:
    target, size, proxy = family.target, family.size, family.proxy
    held = {
        "params": f"{size.amount:,} weights in the blocks' matrices",
        "flops": f"{6 * size.amount:,} FLOPs a token, on sequences of {_seq_len(family)}",
    }[size.equal]
    left = [RATIOS[name].name for name in RATIOS if not family.is_free(name)]
    departures = [clause for clause in family.base.given_up() if not clause.startswith("head_dim")]
    if family.head_dim != target.head_dim:
        departures.insert(0, f"head_dim is {family.head_dim}, the target's {target.head_dim}")
    if family.base.vocab_size != target.vocab_size:
        departures.append(
            f"the vocabulary is {family.base.vocab_size}, the target's {target.vocab_size}"
        )
    longest = longest_seq_len(family.base.scale)
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


def _seq_len(family: RatioFamily) -> int:
    return int(gpt(load_menu(family.base.scale.menu).baseline).seq_len)


# --- knobs --------------------------------------------------------------------------------------


def _turned(family: RatioFamily, name: RatioName) -> tuple[Domain, Scalar, str | None]:
    """Return a ratio's domain, its default and, if it is not a field, its formula."""
    target, proxy, size = family.target, family.proxy, family.size
    bases = tuple(sorted({*ROPE_BASES, target.rope_base}))
    low, high = INIT_SCALES
    numbers: dict[RatioName, tuple[Domain, Scalar, str | None]] = {
        "depth_width": (Ladder(type="int", choices=family.widths), proxy.d_model, None),
        "head_dim": (
            Ladder(type="int", choices=family.head_dims),
            family.head_dim,
            "d_model / n_head",
        ),
        "kv_group": (
            Ladder(type="int", choices=family.kv_groups),
            family.kv_group,
            "n_head / n_kv_head",
        ),
        "ffn_ratio": (Ladder(choices=family.ffn_ratios), family.ffn_ratio, size.ratio_formula()),
        "rope_base": (Ladder(choices=bases), target.rope_base, None),
        "init_scale": (RealRange(low=low, high=high, scale="log"), 1.0, None),
    }
    if name in numbers:
        return numbers[name]
    return Choices(choices=KINDS[name]), getattr(target, name), None


def _constants(base: ProxyMenu, family: RatioFamily, turned: set[str]) -> dict[str, Scalar]:
    """Return the fields that are neither knobs nor tied, without those at their defaults."""
    target, proxy = family.target, family.proxy
    values = {name: value for name, value in base.constants.items() if name not in SHAPE_FIELDS} | {
        "seq_len": gpt(base.baseline).seq_len
    }
    sizes: dict[str, Scalar] = {
        "n_layer": proxy.n_layer,
        "n_head": proxy.n_head,
        "n_kv_head": proxy.kv_heads,
        "d_ff": proxy.d_ff,
    }
    fields: dict[str, Scalar] = {
        **{name: value for name, value in sizes.items() if not _follows(family, name)},
        "d_model": proxy.d_model,
        **{
            name: getattr(target, name)
            for name in ("activation", "norm", "positions", "tie_embeddings")
        },
    }
    later: dict[str, Scalar] = {
        "norm_place": "pre",
        "qk_norm": False,
        "rope_base": 10_000.0,
    }
    fields |= {
        name: getattr(target, name)
        for name, usual in later.items()
        if getattr(target, name) != usual
    }
    return values | {name: value for name, value in fields.items() if name not in turned}


# --- ties and constraints -----------------------------------------------------------------------


def _formulas(family: RatioFamily) -> dict[str, Scalar]:
    size = family.size
    ratio = "ffn_ratio" if family.is_free("ffn_ratio") else f"{family.ffn_ratio:.15g}"
    head_dim = "head_dim" if family.is_free("head_dim") else str(family.head_dim)
    group = "kv_group" if family.is_free("kv_group") else str(family.kv_group)
    activation = None if family.is_free("activation") else family.target.activation
    formulas = {
        "n_layer": size.layers_formula(ratio),
        "n_head": f"d_model / {head_dim}",
        "n_kv_head": f"n_head / {group}",
        "d_ff": size.d_ff_formula(group, activation),
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
    yield from own_constraints(base)
    if family.is_free("kv_group") or family.is_free("head_dim"):
        head_dim = "head_dim" if family.is_free("head_dim") else family.head_dim
        group = "kv_group" if family.is_free("kv_group") else family.kv_group
        yield Constraint(
            expr=f"d_model % ({head_dim} * {group}) == 0", doc="heads and KV heads are whole"
        )
    if family.is_free("ffn_ratio") or family.is_free("depth_width"):
        ratio = "ffn_ratio" if family.is_free("ffn_ratio") else f"{family.ffn_ratio:.15g}"
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
