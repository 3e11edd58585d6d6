"""Muon's update is the one of a reference in float64, and it stops and clips as AdamW does."""

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from autoresearch.errors import SpecError
from tests.support.configs import config
from tests.support.corpora import write_corpus
from tests.support.present import known
from tests.support.trials import tiny_spec
from trainer.backends.megatron import MegatronBackend
from trainer.backends.muon import (
    MOMENTUM,
    POLAR_EXPRESS,
    RMS,
    SAFETY,
    multiplies_bf16,
    orthogonal,
)
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchGPT
from trainer.executors.local import LocalExecutor
from trainer.memory.parts import parameter_count, written_out
from trainer.schema import Config, TrialOk

VOCABULARY = 61
SMALL = {"n_layer": 2, "d_model": 32, "d_ff": 128, "seq_len": 16, "precision": "fp32"}


def muon(**changes: object) -> Config:
    return config(optimizer="muon", **{**SMALL, **changes})


def model_of(recipe: Config) -> TorchGPT:
    torch.manual_seed(0)
    model = TorchGPT(recipe, VOCABULARY, torch.device("cpu"))
    model.init()
    return model


def backward(model: TorchGPT, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    tokens_BT = torch.randint(VOCABULARY, (2, 17), generator=generator)
    loss: Tensor = model(tokens_BT[:, :-1], tokens_BT[:, 1:])
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def polar(x_MN: Tensor) -> Tensor:
    """The four steps for one matrix of any shape, one after the other, in float64."""
    x_MN = x_MN / (x_MN.norm() * SAFETY + 1e-7)
    for number, (a, b, c) in enumerate(POLAR_EXPRESS):
        x_MN = x_MN / SAFETY if number else x_MN
        u_MM, s_M, v_MN = torch.linalg.svd(x_MN, full_matrices=False)
        x_MN = u_MM @ torch.diag(a * s_M + b * s_M**3 + c * s_M**5) @ v_MN
    return x_MN


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "swiglu", "n_kv_head": 2},
        {"grad_clip": 0.01, "muon_lr_ratio": 3.0},
        {"mup_base_width": 8},
    ],
    ids=str,
)
def test_its_updates_are_those_of_a_reference_in_float64(changes: dict[str, object]) -> None:
    recipe = muon(**changes)
    model = model_of(recipe)
    optimizer = optimizer_of(model, recipe)
    weights = [p.detach().double() for p in model.block_matrices]
    momenta = [torch.zeros_like(w) for w in weights]
    rows = [recipe.d_model, *2 * [recipe.kv_heads * recipe.d_model // recipe.n_head]]
    lr = 0.01
    own_lr = lr * recipe.muon_lr_ratio * recipe.width_factor**0.5
    for step in range(3):
        loss = backward(model, step)
        gradients = [known(p.grad).double() for p in model.block_matrices]
        norm = optimizer.step(loss, lr)
        scale = max(1.0, float(norm) / recipe.grad_clip)
        for index, gradient in enumerate(gradients):
            scaled = gradient / scale
            momenta[index] += (1 - MOMENTUM) * (scaled - momenta[index])
            moved = scaled + MOMENTUM * (momenta[index] - scaled)
            parts = torch.split(moved, rows if len(moved) == sum(rows) else len(moved))
            moved = torch.cat([RMS * max(part.shape) ** 0.5 * polar(part) for part in parts])
            weights[index] *= 1 - own_lr * recipe.weight_decay
            weights[index] -= own_lr * moved
    moved = 3 * own_lr * RMS * max(recipe.d_model, recipe.d_ff) ** 0.5
    share = 0.05 if multiplies_bf16(torch.device("cpu")) else 1e-4
    for parameter, weight in zip(model.block_matrices, weights, strict=True):
        torch.testing.assert_close(
            parameter.detach().double(), weight, rtol=0.0, atol=share * moved
        )
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("in_bf16", [False, True])
@pytest.mark.parametrize("shape", [(3, 64, 64), (2, 32, 256)])
def test_it_brings_singular_values_near_one(shape: tuple[int, ...], in_bf16: bool) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(x, in_bf16=in_bf16))
    assert values.max() < 1.1
    assert values.median() > 0.9


def test_what_is_not_in_the_blocks_moves_as_under_adamw() -> None:
    models = {}
    for recipe in (muon(), config(**SMALL)):
        model = model_of(recipe)
        optimizer_of(model, recipe).step(backward(model, 0), 0.01)
        models[recipe.optimizer] = model
    inner = set(dict(models["muon"].blocks.named_parameters()))  # type: ignore[attr-defined]
    for (name, ours), theirs in zip(
        models["muon"].named_parameters(), models["adamw"].parameters(), strict=True
    ):
        is_matrix = name.removeprefix("blocks.") in inner and ours.dim() > 1
        assert torch.equal(ours, theirs) != is_matrix, name


def test_copies_of_its_parameters_see_that_they_changed() -> None:
    recipe = muon()
    model = model_of(recipe)
    before = [p._version for p in model.block_matrices]
    optimizer_of(model, recipe).step(backward(model, 0), 0.01)
    assert all(p._version > seen for p, seen in zip(model.block_matrices, before, strict=True))


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_nothing_is_updated_from_the_first_non_finite_step_on(broken: str) -> None:
    recipe = muon()
    model = model_of(recipe)
    optimizer = optimizer_of(model, recipe)
    optimizer.step(backward(model, 0), 0.01)
    before = copy.deepcopy(model)
    loss = backward(model, 1)
    if broken == "loss":
        loss = loss * math.nan
    else:
        known(model.block_matrices[0].grad)[0, 0] = math.nan
    optimizer.step(loss, 0.01)
    optimizer.step(backward(model, 2), 0.01)
    for now, then in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(now, then)


def test_a_trial_is_the_same_in_another_process(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    spec = tiny_spec(corpus)
    values = {**spec.gpt.canonical(), "optimizer": "muon"}
    spec = spec.model_copy(update={"config": Config.model_validate(values)})
    with LocalExecutor() as executor:
        first, second = (executor.run(spec, tmp_path / name).result for name in ("a", "b"))
    assert isinstance(first, TrialOk) and isinstance(second, TrialOk)
    assert first.val_bpb == second.val_bpb


def test_its_memory_is_a_moment_less_and_a_batch_more() -> None:
    recipe, plain = muon(), config(**SMALL)
    ours, theirs = (written_out(one, VOCABULARY, on_cpu=True) for one in (recipe, plain))
    weights = 2 * (4 * 32 * 32 + 2 * 32 * 128)
    assert theirs.fixed_bytes - ours.fixed_bytes == 4 * weights
    assert ours.update_bytes == 16 * parameter_count(plain, VOCABULARY) - 4 * weights + 20 * (
        2 * 2 * 32 * 128
    )


def test_older_configs_keep_their_hash_and_code_for_the_update_needs_adamw() -> None:
    plain = config()
    assert config(optimizer="adamw", muon_lr_ratio=1.0).config_hash == plain.config_hash
    assert "optimizer" not in plain.canonical()
    assert muon().config_hash != config(**SMALL).config_hash
    update = "def update(param, grad, state, lr, step):\n    return param - lr * grad"
    with pytest.raises(SpecError, match=r"code\.update"):
        muon(**{"code.update": update})


def test_the_megatron_backend_refuses_it() -> None:
    with pytest.raises(SpecError, match="muon"):
        MegatronBackend().check(muon(), torch.device("cuda"))
