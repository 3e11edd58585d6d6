import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from agent.menu.files import load_menu
from autoresearch.errors import TargetError
from funnel.plan import megatron_flags
from funnel.plan.booking import CheckpointPlan, make_schedule
from funnel.plan.layout import Layout
from funnel.plan.megatron_flags import flag_words, launch_precision, precision_flags, save_flags
from funnel.plan.projection import project
from funnel.targets.architecture import TargetArchitecture, load_target, shipped_targets
from funnel.transfer.rules import WidthRule
from tests.funnel.plan.test_layout import gpt3_like
from tests.support.configs import config
from tests.support.places import ROOT
from trainer.backends import muon, torch_gpt
from trainer.backends.kernels import ADAM_EPS
from trainer.schema import gpt

OPTIONS = ROOT / "tests" / "support" / "megatron_options.tsv"
CHECKPOINTS = CheckpointPlan(
    size_gb=1, every_steps=10, every_hours=1, kept_every_steps=240, kept=3, total_gb=3
)


def known_options(lr_rule: WidthRule = "mup") -> dict[str, tuple[str, list[str]]]:
    """Return the options of the real parsers by name: how many values each takes, and which.

    A plan with a rule other than ``mup`` must work with the oldest release.
    """
    lines = OPTIONS.read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {
        name: (takes, choices.split(",") if choices else [])
        for name, takes, choices, *since in rows
        if lr_rule == "mup" or not since
    }


def words_of(
    target: TargetArchitecture,
    *,
    lr_rule: WidthRule = "mup",
    layout: Layout | None = None,
    **changes: Any,
) -> list[str]:
    asked = target.model_copy(update={"lr_rule": lr_rule})
    projection = project(config(**changes), asked, horizon_steps=1000)
    layout = layout or Layout(tensor=2, pipeline=2, data=2, micro_batch=1, global_batch=16)
    schedule = make_schedule(projection, layout, batch_carried=16)
    groups = megatron_flags.megatron_flags(projection, layout, schedule)
    flags = [flag for group in groups for flag in group.flags]
    numerics = precision_flags(launch_precision(projection))
    return flag_words([*flags, *numerics, *save_flags(CHECKPOINTS)])


def options(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, values = words[0], list[str]()
    for word in words[1:]:
        if word.startswith("--"):
            yield name, values
            name, values = word, []
        else:
            values.append(word)
    yield name, values


def value(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


TARGETS = [load_target(name) for name in shipped_targets()] + [gpt3_like()]
LAYOUTS = [
    Layout(tensor=1, pipeline=1, data=8, micro_batch=2, global_batch=16),
    Layout(tensor=4, pipeline=2, data=1, micro_batch=1, global_batch=4, recompute="full"),
]


@pytest.mark.parametrize("lr_rule", ["mup", "sqrt_width"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_flag_is_one_that_megatron_lm_has(
    target: TargetArchitecture, layout: Layout, precision: str, lr_rule: WidthRule
) -> None:
    known = known_options(lr_rule)
    words = words_of(target, lr_rule=lr_rule, layout=layout, precision=precision)
    seen = list(options(words))
    assert len({name for name, _ in seen}) == len(seen)
    for name, values in seen:
        takes, choices = known[name]
        assert len(values) == {"0": 0, "1": 1}[takes], name
        assert not choices or set(values) <= set(choices), (name, values)


@pytest.mark.parametrize(("lr_rule", "of_the_blocks"), [("mup", 32), ("sqrt_width", 1)])
def test_the_recipe_is_in_the_flags(lr_rule: WidthRule, of_the_blocks: float) -> None:
    recipe: dict[str, Any] = {
        "lr": 2e-3, "lr_min_ratio": 0.25, "beta1": 0.91, "beta2": 0.97, "grad_clip": 0.5,
        "weight_decay": 0.2, "lr_warmup": 10,
    }  # fmt: skip
    target = load_target("llama-7b").model_copy(update={"lr_rule": lr_rule})
    words = words_of(target, lr_rule=lr_rule, **recipe)
    carried = project(config(**recipe), target, horizon_steps=1000)
    lr, steps = of_the_blocks * carried.config.lr, int(value(words, "--train-iters"))
    for name, wanted in {
        "--lr": lr, "--min-lr": 0.25 * lr, "--adam-beta1": 0.91, "--adam-beta2": 0.97,
        "--clip-grad": 0.5, "--weight-decay": carried.config.weight_decay,
        "--lr-decay-iters": steps, "--lr-warmup-iters": round(0.01 * steps), "--adam-eps": ADAM_EPS,
    }.items():  # fmt: skip
        assert float(value(words, name)) == pytest.approx(wanted), name


LLAMA, GPT = load_target("llama-7b"), gpt3_like()
TIED = f"{0.18 / math.sqrt(128):.8g}"
"""Initial standard deviation of tied tables, 0.18 over the root of the proxy's width."""


def like(**changes: Any) -> TargetArchitecture:
    return LLAMA.model_copy(update=changes)


@pytest.mark.parametrize(
    ("target", "recipe", "wanted", "absent"),
    [
        (
            LLAMA,
            {},
            "--swiglu --group-query-attention --num-query-groups 8 --normalization RMSNorm "
            "--untie-embeddings-and-output-weights --position-embedding-type rope --use-mup "
            "--ffn-hidden-size 14336 --bf16 --sequence-parallel --lr-decay-style cosine",
            "--no-bias-gelu-fusion --fp8-format --qk-layernorm --squared-relu "
            "--recompute-granularity --lr-wsd-decay-iters",
        ),
        (
            GPT,
            {},
            # Megatron-Core raises an error if GELU is fused with a missing bias.
            "--normalization LayerNorm --no-bias-gelu-fusion",
            "--swiglu --group-query-attention --untie-embeddings-and-output-weights --rotary-base",
        ),
        (LLAMA, {"precision": "fp32"}, "--bf16", "--fp8-format"),
        (LLAMA, {"precision": "fp8"}, "--fp8-format hybrid --fp8-amax-history-len 16", ""),
        (LLAMA, {"layout": LAYOUTS[0]}, "", "--sequence-parallel --recompute-granularity"),
        (LLAMA, {"layout": LAYOUTS[1]}, "--recompute-granularity full", ""),
        (LLAMA, {"schedule": "linear"}, "--lr-decay-style linear", "--lr-wsd-decay-iters"),
        (LLAMA, {"schedule": "wsd"}, "--lr-decay-style WSD --lr-wsd-decay-style linear", ""),
        (
            LLAMA,
            {"d_model": 256, "n_head": 4},
            "--use-mup --mup-base-hidden-size 256 --mup-base-head-dim 64",
            "",
        ),
        (LLAMA, {"lr_rule": "sqrt_width"}, f"--embedding-init-method-std {TIED}", "--use-mup"),
        (LLAMA, {}, f"--init-method-std 0.02 --embedding-init-method-std {TIED}", ""),
        (
            LLAMA,
            {"mup_base_width": 64},
            "--mup-base-hidden-size 64 --embedding-init-method-std 0.02",
            "",
        ),
        (LLAMA, {"init_scale": 0.5}, "--init-method-std 0.01", ""),
        (
            LLAMA,
            {"optimizer": "muon"},
            "--optimizer dist_muon --muon-momentum 0.95 --muon-scale-mode spectral "
            "--muon-extra-scale-factor 0.2 --muon-tp-mode duplicated --muon-num-ns-steps 5",
            "--use-mup --use-distributed-optimizer --overlap-param-gather --decoupled-lr",
        ),
        (like(qk_norm=True, rope_base=5e5), {}, "--qk-layernorm --rotary-base 500000", ""),
        (
            like(activation="relu2", ffn_ratio=5.25),
            {},
            "--squared-relu --no-bias-gelu-fusion",
            "--swiglu",
        ),
    ],
    ids=str,
)
def test_the_flags_of_a_recipe(
    target: TargetArchitecture, recipe: dict[str, Any], wanted: str, absent: str
) -> None:
    words = words_of(target, **recipe)
    seen = dict(options(words))
    assert seen.keys() <= known_options().keys()
    for name, values in options(wanted.split()) if wanted else ():
        assert seen[name] == values
    assert not seen.keys() & set(absent.split())


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_muon_has_its_own_rate_and_scales_with_the_root_of_the_width(ratio: float) -> None:
    words = words_of(LLAMA, optimizer="muon", muon_lr_ratio=ratio, lr_min_ratio=0.25)
    plain = words_of(LLAMA, lr_rule="sqrt_width", lr_min_ratio=0.25)
    lr = float(value(plain, "--lr"))
    assert float(value(words, "--lr")) == pytest.approx(ratio * lr)
    assert float(value(words, "--min-lr")) == pytest.approx(0.25 * ratio * lr)
    if ratio != 1.0:
        assert float(value(words, "--decoupled-lr")) == pytest.approx(lr)
        assert float(value(words, "--decoupled-min-lr")) == pytest.approx(0.25 * lr)
    known = known_options("sqrt_width")
    for name, values in options(words):
        takes, choices = known[name]
        assert len(values) == {"0": 0, "1": 1}[takes], name
        assert not choices or set(values) <= set(choices), (name, values)


@pytest.mark.parametrize("menu", ["cpu-modern", "spark-modern"])
def test_the_recipe_of_a_menu_of_today_can_be_launched(menu: str) -> None:
    recipe = gpt(load_menu(menu).baseline).canonical()
    words = words_of(like(activation="relu2", ffn_ratio=5.25, qk_norm=True), **recipe)
    assert {name for name, _ in options(words)} <= known_options("sqrt_width").keys()
    assert value(words, "--optimizer") == "dist_muon"
    assert "--squared-relu" in words
    assert "--qk-layernorm" in words


def test_muon_s_constants_are_the_proxies() -> None:
    assert megatron_flags.MUON_MOMENTUM == muon.MOMENTUM
    assert megatron_flags.MUON_RMS == muon.RMS


def test_constants_of_the_initial_weights_are_the_proxies() -> None:
    assert megatron_flags.INIT_STD == torch_gpt.INIT_STD
    assert megatron_flags.MAX_LOGIT_STD == torch_gpt.MAX_LOGIT_STD
    assert megatron_flags.MAX_TIED_LOGIT_STD == torch_gpt.MAX_TIED_LOGIT_STD


def test_the_fall_of_wsd_is_a_share_of_the_steps() -> None:
    words = words_of(LLAMA, schedule="wsd", decay_share=0.25)
    steps = int(value(words, "--train-iters"))
    assert value(words, "--lr-wsd-decay-iters") == str(round(0.25 * steps))


def test_a_fall_never_begins_inside_the_warm_up() -> None:
    words = words_of(load_target("llama-7b"), schedule="wsd", decay_share=1.0, lr_warmup=100)
    steps, warmup, fall = (
        int(value(words, name))
        for name in ("--train-iters", "--lr-warmup-iters", "--lr-wsd-decay-iters")
    )
    assert fall == steps - warmup < steps


@pytest.mark.parametrize(
    ("of_target", "of_winner", "part"),
    [
        ({"activation": "geglu"}, {}, "activation geglu"),
        ({"norm_place": "output"}, {}, "norm_place output"),
        ({"qk_norm": True, "norm": "layernorm"}, {}, "qk_norm with norm layernorm"),
        ({"rope_base": 12345.5}, {}, r"rope_base 12345\.5"),
        ({}, {"mup_base_depth": 4}, "mup_base_depth 4"),
        ({}, {"mup_base_depth": 32}, None),  # the branches are not scaled at the target
    ],
    ids=str,
)
def test_what_megatron_lm_has_no_flag_for_is_refused(
    of_target: dict[str, Any], of_winner: dict[str, Any], part: str | None
) -> None:
    target = load_target("llama-7b").model_copy(update=of_target)
    with nullcontext() if part is None else pytest.raises(TargetError, match=part):
        words_of(target, **of_winner)
