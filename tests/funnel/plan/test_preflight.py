from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent.commands.launch.preflight import preflight as command
from autoresearch.errors import SettingsError, TargetError
from funnel.plan.preflight import (
    CONTROL,
    MAX_LR,
    PAIRS,
    Sameness,
    compare,
    layouts_for,
    preflight,
    toy_config,
)
from funnel.plan.projection import project
from funnel.target.architecture import load_target
from funnel.target.plain_recipe import plain_config, recipe_config
from tests.support.configs import config
from tests.support.present import known
from trainer.parallel.job import SINGLE, LayoutLosses

app = typer.Typer()
app.command()(command)

LLAMA = toy_config(plain_config(load_target("llama-7b")))
"""Config with grouped queries, SwiGLU, RMSNorm, rotary positions and an untied head."""
GPT = toy_config(config(weight_decay=0.1))
"""Config with full attention, GELU, LayerNorm, learned positions and a tied head."""


def check(results: list[Sameness]) -> None:
    assert [r.message for r in results if not r.passed] == []
    for result in results:
        assert known(result.loss_last) < known(result.loss_first), "it learns"


@pytest.mark.slow
def test_every_parallelism_on_two_ranks_trains_the_same_model_and_the_control_does_not() -> None:
    results = list(preflight(LLAMA, layouts_for(2), steps=3))
    assert [r.layout for r in results] == [layout.name for layout in (SINGLE, *PAIRS, CONTROL)]
    check(results)
    control = results[-1]
    assert control.is_control
    assert known(control.loss_difference) > 1e-3
    assert max(r.loss_difference or 0.0 for r in results[:-1]) < 2e-6


@pytest.mark.slow
def test_a_tied_head_and_learned_positions_too() -> None:
    shared = tuple(one for one in PAIRS if 2 in (one.tensor, one.pipeline))
    check(list(preflight(GPT, shared, steps=3)))


@pytest.mark.slow
def test_combinations_on_four_ranks() -> None:
    four = tuple(layout for layout in layouts_for(4) if layout.world_size == 4)
    assert len(four) == 3
    check(list(preflight(LLAMA, four, steps=3)))


def losses(*values: float, norm: float = 1.0) -> LayoutLosses:
    return LayoutLosses(name="x", losses=values, grad_norms=(norm,) * len(values))


def test_a_difference_beyond_the_tolerance_fails_and_for_the_control_passes() -> None:
    single = losses(5.0, 4.0)
    ddp = PAIRS[0]
    assert compare(ddp, losses(5.0, 4.0 * (1 + 5e-6)), single).passed
    off = compare(ddp, losses(5.0, 4.0 * (1 + 5e-5)), single)
    assert not off.passed
    assert off.loss_difference == pytest.approx(5e-5)
    assert not compare(ddp, losses(5.0, 4.0, norm=1.001), single).passed
    assert not compare(CONTROL, single, single).passed
    assert compare(CONTROL, losses(5.0, 4.1), single).passed


def test_the_toy_keeps_what_the_recipe_is() -> None:
    target = load_target("llama-7b")
    assert LLAMA.n_head // LLAMA.kv_heads == target.n_head // target.n_kv_head
    assert LLAMA.d_ff / LLAMA.d_model == target.ffn_ratio
    assert (LLAMA.activation, LLAMA.norm, LLAMA.positions) == ("swiglu", "rmsnorm", "rotary")
    assert LLAMA.tie_embeddings == target.tie_embeddings
    assert (LLAMA.precision, LLAMA.lr_warmup) == ("fp32", 0)
    assert GPT.n_kv_head is None
    full = plain_config(target)
    slow = toy_config(full.model_copy(update={"lr": 1e-6}))
    assert slow.lr == pytest.approx(1e-6 * full.d_model / LLAMA.d_model)
    assert LLAMA.lr == MAX_LR, "where rounding would grow the rate is bounded"
    assert (LLAMA.beta1, LLAMA.weight_decay) == (full.beta1, full.weight_decay)


@pytest.mark.parametrize("name", ["llama-1b", "llama-7b", "llama-70b"])
def test_every_shipped_target_can_be_shared_by_two(name: str) -> None:
    toy = toy_config(plain_config(load_target(name)))
    for ranks in (toy.kv_heads, toy.n_head, toy.d_ff, toy.n_layer, toy.batch_size // 2):
        assert ranks % 2 == 0


def test_layouts_fill_the_ranks_there_are() -> None:
    assert {layout.world_size for layout in layouts_for(2)} == {2}
    assert {layout.world_size for layout in layouts_for(8)} == {2, 4, 8}
    assert CONTROL in layouts_for(2)


def test_a_recipe_is_read_back_from_a_plan_or_a_bare_config(tmp_path: Path) -> None:
    plan = project(config(), load_target("llama-7b"), horizon_steps=1000)
    path = tmp_path / "recipe.json"
    for text in (
        json.dumps({"projection": plan.model_dump(mode="json"), "other": 1}),
        plan.model_dump_json(),
        plan.config.model_dump_json(),
    ):
        path.write_text(text)
        assert recipe_config(path) == plan.config
    for text in ("{", "[]", '{"config": {"lr": 1}}'):
        path.write_text(text)
        with pytest.raises(TargetError, match=r"recipe\.json"):
            recipe_config(path)
    with pytest.raises(TargetError):
        recipe_config(tmp_path / "nowhere")


@pytest.mark.slow
def test_the_command_prints_a_table_and_exits_one_where_a_layout_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = CliRunner().invoke(app, ["--target=llama-7b", "--recipe=x"])
    assert isinstance(refused.exception, SettingsError)
    (tmp_path / "recipe.json").write_text(config().model_dump_json())
    monkeypatch.setattr("funnel.plan.preflight.LAYOUT_S", 0.1)  # no process finishes within it
    done = CliRunner().invoke(app, [f"--recipe={tmp_path / 'recipe.json'}", "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["passed"] is False
