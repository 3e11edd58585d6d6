"""A recipe's parts agree with numpy; initialization and rates agree with the papers' tables."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support import numpy_gpt
from tests.support.configs import config
from tests.support.recipes import PARTS
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import INIT_STD, TorchBackend, TorchGPT
from trainer.spec import Config

CPU = torch.device("cpu")
VOCAB = 101
SHAPE = {"n_layer": 2, "n_head": 4, "d_model": 32, "d_ff": 48, "seq_len": 16, "batch_size": 3}


def recipe(**changes: Any) -> Config:
    return config(**{**SHAPE, "precision": "fp32", **changes})


def build(of: Config, *, kernels: bool = False) -> TorchGPT:
    torch.manual_seed(0)
    return TorchBackend(kernels=kernels).build(of, VOCAB, CPU).train()


@torch.no_grad()
def stir(model: TorchGPT) -> TorchGPT:
    """Move a model far from its start, where attention is almost a mean and gains are 1."""
    torch.manual_seed(4)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.mul_(12 if name.endswith("qkv_RD") else 5)
    return model


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    stream_BT = torch.randint(VOCAB, (3, 17), generator=torch.Generator().manual_seed(seed))
    return stream_BT[:, :-1], stream_BT[:, 1:]


@pytest.mark.parametrize("kernels", [False, True], ids=["written", "kernels"])
@pytest.mark.parametrize("changes", ({}, *PARTS), ids=str)
def test_logits_are_those_of_the_formulas(changes: dict[str, Any], kernels: bool) -> None:
    of = recipe(**changes)
    model = stir(build(of, kernels=kernels))
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    tokens_BT, _ = batch()
    with torch.no_grad():
        got_BTV = model.logits(tokens_BT).double().numpy()
    wanted_BTV = np.stack(
        [numpy_gpt.logits(weights, of, tokens_T.numpy()) for tokens_T in tokens_BT]
    )
    assert wanted_BTV.std() > 0.05
    assert np.abs(got_BTV - wanted_BTV).max() < 2e-5 * np.abs(wanted_BTV).max()


@pytest.mark.parametrize("changes", PARTS, ids=str)
def test_every_part_changes_the_function(changes: dict[str, Any]) -> None:
    """Otherwise the formulas would confirm the same model twelve times."""
    with torch.no_grad():
        plain, other = (stir(build(recipe(**c))).logits(batch()[0]) for c in ({}, changes))
    assert (plain - other).abs().max() > 0.05 * plain.abs().max()


@pytest.mark.parametrize("changes", PARTS, ids=str)
def test_on_kernels_gradients_are_those_of_the_model_as_written(changes: dict[str, Any]) -> None:
    found: list[dict[str, Tensor]] = []
    for kernels in (False, True):
        model = stir(build(recipe(**changes), kernels=kernels))
        model(*batch()).backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        assert found[-1].keys() == dict(model.named_parameters()).keys()
    for name, wanted in found[0].items():
        largest = wanted.abs().max().item()
        assert largest > 0, name
        torch.testing.assert_close(found[1][name], wanted, rtol=0, atol=2e-5 * largest, msg=name)


@pytest.mark.parametrize("changes", PARTS, ids=str)
def test_bf16_is_close_to_fp32_with_and_without_kernels(changes: dict[str, Any]) -> None:
    exact = build(recipe(**changes))(*batch()).item()
    for kernels in (False, True):
        rounded = build(recipe(**changes, precision="bf16"), kernels=kernels)(*batch()).item()
        assert rounded == pytest.approx(exact, rel=5e-3)
        assert rounded != exact


# --- initialization ------------------------------------------------------------------------------


def spreads(**changes: Any) -> dict[str, float]:
    """Return the initial standard deviations by the last part of the parameter's name.

    The model is large enough for precise estimates.
    """
    model = build(recipe(**{"d_model": 128, "d_ff": 512, **changes}))
    return {
        name.split(".")[-1]: p.std().item() for name, p in model.named_parameters() if p.dim() > 1
    }


def test_the_start_is_scaled_in_the_blocks_alone() -> None:
    plain, scaled = spreads(), spreads(init_scale=0.5)
    for name in ("qkv_RD", "out_DD", "up_FD", "down_DF"):
        assert scaled[name] == pytest.approx(0.5 * plain[name], rel=1e-5)
    assert scaled["embedding_VD"] == plain["embedding_VD"]


def test_the_start_has_the_base_s_variance_times_base_over_width() -> None:
    """Table 8 of arXiv 2203.03466: hidden weights 1 / fan_in, tables and head as at the base."""
    base, wide = spreads(), spreads(d_model=512, d_ff=2048, mup_base_width=128)
    for name in ("qkv_RD", "out_DD", "up_FD", "down_DF"):
        assert wide[name] == pytest.approx(base[name] / 2, rel=0.03)
    assert wide["embedding_VD"] == pytest.approx(base["embedding_VD"], rel=0.03)


def test_the_start_does_not_depend_on_depth_where_the_branches_are_scaled_by_it() -> None:
    """Table 1 of arXiv 2505.01618. Without the scaling, layers that write to the stream shrink
    (GPT-2)."""
    base, deep, plain = spreads(), spreads(n_layer=8, mup_base_depth=2), spreads(n_layer=8)
    for name in ("qkv_RD", "out_DD", "up_FD", "down_DF"):
        assert deep[name] == pytest.approx(base[name], rel=0.05)
    assert plain["out_DD"] == pytest.approx(INIT_STD / math.sqrt(16), rel=0.05)


def test_at_its_own_base_a_parametrisation_changes_nothing() -> None:
    plain, based = build(recipe()), build(recipe(mup_base_width=32, mup_base_depth=2))
    losses = []
    for model in (plain, based):
        optimizer = optimizer_of(model, model.config)
        for step in range(3):
            loss = model(*batch(step))
            loss.backward()
            optimizer.step(loss, 0.01)
        losses.append(loss.item())
    assert losses[0] == losses[1]
    for one, other in zip(plain.parameters(), based.parameters(), strict=True):
        assert torch.equal(one, other)


# --- the rates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [False, True], ids=["written", "kernels"])
@pytest.mark.parametrize(
    ("changes", "lr", "eps"),
    [
        ({"mup_base_width": 8}, 1 / 4, 1 / 4),
        ({"mup_base_depth": 1}, 1.0, 1 / 2),
        ({"mup_base_width": 64, "mup_base_depth": 1}, 2.0, 1.0),
    ],
)
def test_the_blocks_matrices_have_the_rates_of_the_papers_tables(
    changes: dict[str, Any], lr: float, eps: float, kernels: bool
) -> None:
    """The reference is torch's AdamW with its own groups, on gradients so small that epsilon
    matters."""
    of = recipe(weight_decay=0.3, grad_clip=1e9, tie_embeddings=False, precision="bf16", **changes)
    ours = build(of, kernels=kernels)
    theirs = copy.deepcopy(dict(ours.named_parameters()))
    own = [p for n, p in theirs.items() if n.startswith("blocks.") and p.dim() > 1]
    tables = [p for n, p in theirs.items() if not n.startswith("blocks.") and p.dim() > 1]
    gains = [p for p in theirs.values() if p.dim() == 1]
    reference = torch.optim.AdamW(
        [
            {"params": own, "lr": 0.01 * lr, "eps": 1e-8 * eps, "weight_decay": 0.3},
            {"params": tables, "lr": 0.01, "weight_decay": 0.3},
            {"params": gains, "lr": 0.01, "weight_decay": 0.0},
        ],
        betas=(of.beta1, of.beta2),
        foreach=False,
    )
    optimizer = optimizer_of(ours, of)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        for (name, mine), other in zip(ours.named_parameters(), theirs.values(), strict=True):
            other.grad = 2e-8 * torch.randn(other.shape, generator=generator)
            mine.grad = other.grad.clone()
            assert name in theirs
        optimizer.step(torch.zeros(()), 0.01)
        reference.step()
    for name, mine in ours.named_parameters():
        torch.testing.assert_close(mine, theirs[name], rtol=1e-4, atol=1e-6, msg=name)
