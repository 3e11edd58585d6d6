"""A recipe's parts agree with numpy and on kernels; their start and rates, with the papers."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.support import numpy_gpt
from tests.support.configs import CHOICES
from tests.support.gpts import batch, build, gradients, recipe, stirred
from tests.support.recipes import PARTS
from trainer.backends import linear_cross_entropy
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import INIT_STD
from trainer.memory.parts import chunk_tokens

ALL = [*CHOICES, *({**choice, "n_kv_head": 1} for choice in CHOICES), *PARTS]


@pytest.mark.parametrize("kernels", [False, True], ids=["written", "kernels"])
@pytest.mark.parametrize("changes", ALL, ids=str)
def test_logits_are_those_of_the_formulas(changes: dict[str, Any], kernels: bool) -> None:
    model = stirred(build(kernels, **changes))
    weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    tokens_BT, _ = batch()
    with torch.no_grad():
        got_BTV = model.logits(tokens_BT).double().numpy()
        plain_BTV = stirred(build()).logits(tokens_BT).double().numpy()
    wanted_BTV = np.stack(
        [numpy_gpt.logits(weights, model.config, tokens_T.numpy()) for tokens_T in tokens_BT]
    )
    largest = np.abs(wanted_BTV).max()
    assert np.abs(got_BTV - wanted_BTV).max() < 2e-5 * largest
    if model.config != recipe():  # else the formulas would confirm one model many times
        assert np.abs(plain_BTV - wanted_BTV).max() > 0.05 * largest


@pytest.mark.parametrize("changes", ALL, ids=str)
def test_kernels_train_as_written(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are computed 7 tokens of 64 at once."""
    monkeypatch.setattr(
        linear_cross_entropy, "chunk_tokens", lambda tokens, *_: chunk_tokens(tokens, 1, 7)
    )
    models = [stirred(build(kernels, **changes)) for kernels in (False, True)]
    (loss_a, wanted), (loss_b, got) = map(gradients, models)
    assert loss_b == pytest.approx(loss_a, rel=1e-6)
    for name, gradient in wanted.items():
        largest = gradient.abs().max().item()
        assert largest > 0 and got[name].dtype is torch.float32
        torch.testing.assert_close(got[name], gradient, rtol=0, atol=2e-5 * largest, msg=name)
    with torch.inference_mode():
        scores = [model.eval()(*batch(2)) for model in models]
    assert scores[1].dtype is torch.float64
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", PARTS, ids=str)
def test_bf16_is_close_to_fp32_with_and_without_kernels(changes: dict[str, Any]) -> None:
    exact = build(**changes)(*batch()).item()
    for kernels in (False, True):
        rounded = build(kernels, **changes, precision="bf16")(*batch()).item()
        assert rounded == pytest.approx(exact, rel=5e-3)
        assert rounded != exact


# --- initialization ------------------------------------------------------------------------------

IN_BLOCKS = ("qkv_RD", "out_DD", "up_FD", "down_DF")


def spreads(**changes: Any) -> dict[str, float]:
    """Return the initial standard deviations, of a model that is large enough for precise ones."""
    model = build(**{"d_model": 128, "d_ff": 512, **changes})
    return {
        name.split(".")[-1]: p.std().item() for name, p in model.named_parameters() if p.dim() > 1
    }


@pytest.mark.parametrize(
    ("changes", "in_blocks", "near"),
    [
        ({"init_scale": 0.5}, 0.5, 1e-5),
        # Table 8 of arXiv 2203.03466: hidden weights 1 / fan_in, tables and head as at the base.
        ({"d_model": 512, "d_ff": 2048, "mup_base_width": 128}, 0.5, 0.03),
        # Table 1 of arXiv 2505.01618: nothing depends on depth where branches are scaled by it.
        ({"n_layer": 8, "mup_base_depth": 2}, 1.0, 0.05),
    ],
)
def test_only_blocks_start_scaled(changes: dict[str, Any], in_blocks: float, near: float) -> None:
    base, other = spreads(), spreads(**changes)
    for name in IN_BLOCKS:
        assert other[name] == pytest.approx(in_blocks * base[name], rel=near)
    assert other["embedding_VD"] == pytest.approx(base["embedding_VD"], rel=near)


def test_what_writes_to_the_stream_starts_smaller_in_a_deeper_model() -> None:
    assert spreads(n_layer=8)["out_DD"] == pytest.approx(INIT_STD / math.sqrt(16), rel=0.05)


def test_at_its_own_base_a_parametrisation_changes_nothing() -> None:
    plain, based = build(), build(mup_base_width=32, mup_base_depth=2)
    for model in (plain, based):
        optimizer = optimizer_of(model, model.config)
        for step in range(3):
            loss = model(*batch(step))
            loss.backward()
            optimizer.step(loss, 0.01)
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
def test_blocks_and_tables_have_published_rates(
    changes: dict[str, Any], lr: float, eps: float, kernels: bool
) -> None:
    """The reference is torch's AdamW, on gradients so small that epsilon matters."""
    fields = {"weight_decay": 0.3, "grad_clip": 1e9, "tie_embeddings": False, "precision": "bf16"}
    ours = build(kernels, **fields, **changes)
    theirs = copy.deepcopy(dict(ours.named_parameters()))
    matrices = {name: p for name, p in theirs.items() if p.dim() > 1}
    own = [p for name, p in matrices.items() if name.startswith("blocks.")]
    tables = [p for name, p in matrices.items() if not name.startswith("blocks.")]
    gains = [p for p in theirs.values() if p.dim() == 1]
    reference = torch.optim.AdamW(
        [
            {"params": own, "lr": 0.01 * lr, "eps": 1e-8 * eps, "weight_decay": 0.3},
            {"params": tables, "lr": 0.01, "weight_decay": 0.3},
            {"params": gains, "lr": 0.01, "weight_decay": 0.0},
        ],
        betas=(ours.config.beta1, ours.config.beta2),
        foreach=False,
    )
    optimizer = optimizer_of(ours, ours.config)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        for mine, other in zip(ours.parameters(), theirs.values(), strict=True):
            other.grad = 2e-8 * torch.randn(other.shape, generator=generator)
            mine.grad = other.grad.clone()
        optimizer.step(torch.zeros(()), 0.01)
        reference.step()
    for name, mine in ours.named_parameters():
        torch.testing.assert_close(mine, theirs[name], rtol=1e-4, atol=1e-6, msg=name)
