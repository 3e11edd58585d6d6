"""Megatron-Core's optimizer takes the steps of ours, and its trials end where ours do."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autoresearch.errors import MachineryError
from tests.support import megatron_on_cpu
from tests.support.corpora import write_corpus
from tests.support.megatron_on_cpu import (
    QUIET,
    Measured,
    batch,
    build,
    measure,
    needs_megatron,
    small,
)
from tests.support.trials import trial_spec
from trainer.backends.megatron.backend import MegatronBackend
from trainer.backends.optimizer import AdamW, Rates, optimizer_of
from trainer.backends.torch_gpt import TorchBackend
from trainer.executors.local import LocalExecutor
from trainer.spec import Budget
from trainer.training.kernel_check import checking_kernels
from trainer.training.train import TrialStopped

pytestmark = QUIET


@pytest.mark.usefixtures("on_cpu")
def test_megatron_s_optimizer_takes_the_steps_of_ours() -> None:
    """On the same gradients the updates are equal: clipped, decayed on matrices only, with fp32
    copies of bf16 weights."""
    recipe = small(precision="bf16", weight_decay=0.3, grad_clip=0.05)
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    assert not isinstance(optimizer, AdamW)
    parameters = list(model.parameters())
    copies = [nn.Parameter(p.detach().float()) for p in parameters]
    ours = AdamW(
        copies, betas=(recipe.beta1, recipe.beta2), weight_decay=0.3, grad_clip=recipe.grad_clip
    )
    tokens_BT, targets_BT = batch()
    for step in range(1, 6):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        for parameter, copy in zip(parameters, copies, strict=True):
            assert parameter.grad is None
            copy.grad = parameter.main_grad.clone()
        norm = optimizer.step(loss, 1e-3 * step)
        torch.testing.assert_close(norm, ours.step(loss, 1e-3 * step))
        assert norm > 2 * recipe.grad_clip
        for parameter, copy in zip(parameters, copies, strict=True):
            assert parameter.dtype is torch.bfloat16
            assert parameter.main_param.dtype is torch.float32
            torch.testing.assert_close(parameter.main_param, copy, rtol=2e-6, atol=1e-7)
            assert torch.equal(parameter, parameter.main_param.bfloat16())
            assert not parameter.main_grad.any()


@pytest.mark.usefixtures("on_cpu")
def test_megatron_s_optimizer_has_the_rates_of_a_parametrisation_too() -> None:
    """The blocks' matrices train at a quarter of the rate and epsilon. The gradients are small
    enough for epsilon to matter."""
    recipe = small(precision="bf16", weight_decay=0.3, mup_base_width=8, tie_embeddings=False)
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    named = dict(model.gpt.named_parameters())
    copies = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    ours = AdamW(
        copies.values(),
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=0.3,
        grad_clip=1.0,
        own_rates={
            p: Rates(0.25, 0.25) for name, p in copies.items() if ".layers." in name and p.dim() > 1
        },
    )
    generator = torch.Generator().manual_seed(6)
    for _ in range(3):
        for name, parameter in named.items():
            copies[name].grad = 2e-8 * torch.randn(parameter.shape, generator=generator)
            parameter.main_grad.copy_(copies[name].grad)
        optimizer.step(torch.zeros(()), 1e-2)
        ours.step(torch.zeros(()), 1e-2)
    for name, parameter in named.items():
        torch.testing.assert_close(
            parameter.main_param, copies[name], rtol=2e-6, atol=1e-7, msg=name
        )


@pytest.mark.slow
@pytest.mark.usefixtures("on_cpu")
def test_steps_below_bf16_s_grid_add_up() -> None:
    recipe = small(precision="bf16")
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    gain = next(p for p in model.parameters() if p.dim() == 1)
    tokens_BT, targets_BT = batch()
    seen = []
    for _ in range(60):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        optimizer.step(loss, 2e-4)
        seen.append(gain.detach().clone())
    # A gain of 1 moves by 2e-4 at most; its neighbors in bf16 are 0.0039 and 0.0078 away.
    assert torch.equal(seen[0], torch.ones_like(gain))
    assert not torch.equal(seen[-1], torch.ones_like(gain))


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_nothing_is_updated_from_the_first_step_that_is_not_finite_on(broken: str) -> None:
    recipe = small(precision="bf16")
    model = build(recipe)
    optimizer = optimizer_of(model, recipe)
    tokens_BT, targets_BT = batch()
    before = [p.main_param.clone() for p in model.parameters()]
    for step in range(3):
        loss = model(tokens_BT, targets_BT)
        loss.backward()
        if step == 0 and broken == "gradient":
            next(model.parameters()).main_grad[0, 0] = math.inf
        told = loss * math.nan if step == 0 and broken == "loss" else loss
        norm = optimizer.step(told, 1e-3)
        assert norm.isfinite() == (step > 0 or broken == "loss")
    for parameter, weights in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.main_param, weights)
        assert torch.equal(parameter, weights.bfloat16())


@pytest.mark.slow
@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    ("recipe", "tolerance"),
    [
        ({}, 1e-4),
        ({"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}, 1e-4),
        ({"precision": "bf16", "weight_decay": 0.1}, 1e-2),
    ],
)
def test_a_trial_of_the_same_seed_ends_at_the_reference_s_val_bpb(
    tmp_path: Path, recipe: dict[str, Any], tolerance: float
) -> None:
    backend = MegatronBackend()
    corpus = write_corpus(tmp_path / "corpus")
    spec = trial_spec(
        corpus.directory, config=small(lr=1e-2, **recipe), budget=Budget(amount=30), threads=1
    )
    ours, theirs = measure(TorchBackend(), spec), measure(backend, spec)
    assert theirs.loss_first == pytest.approx(ours.loss_first, rel=tolerance)
    assert theirs.val_bpb == pytest.approx(ours.val_bpb, rel=tolerance)
    assert theirs.loss_last < theirs.loss_first - 1
    assert measure(backend, spec) == theirs


@pytest.mark.slow
@needs_megatron
def test_a_trial_in_the_sandbox_needs_no_network(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    recipe = small(precision="bf16")
    spec = trial_spec(corpus.directory, config=recipe, budget=Budget(amount=3), threads=1)
    with LocalExecutor(entry=megatron_on_cpu.ENTRY, allow_unsandboxed=True) as executor:
        executor.run(spec, tmp_path / "trial")
    told = (tmp_path / "trial" / megatron_on_cpu.MEASURED).read_text()
    measured = Measured.model_validate_json(told)
    assert measured.loss_first == pytest.approx(measure(TorchBackend(), spec).loss_first, rel=1e-3)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("diverged", "stopped"), [(False, MachineryError), (True, TrialStopped)], ids=["nan", "config"]
)
def test_a_nan_of_megatron_s_operators_is_told_from_a_config_that_diverges(
    diverged: bool, stopped: type[Exception], precision: str
) -> None:
    recipe = small(precision=precision, seq_len=32, lr=2.0 if diverged else 0.001)
    model = build(recipe)
    if diverged:
        with torch.no_grad():
            next(model.gpt.parameters()).fill_(math.inf)
    else:
        model.gpt.decoder.register_forward_hook(lambda _module, _inputs, out: out * math.nan)
    with pytest.raises(stopped), checking_kernels(model, lambda _step: batch(length=32)):
        raise TrialStopped("nonfinite", "the loss is not finite", steps=3)
