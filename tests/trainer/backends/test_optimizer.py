"""AdamW makes the textbook's update, decays matrices only, and stops for good."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from tests.support.present import known
from trainer.backends.optimizer import AdamW


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def backward(model: nn.Module, scale: float = 1.0, seed: int = 0) -> Tensor:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
    loss: Tensor = (model(x) * scale).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss


def adamw(model: nn.Module, grad_clip: float = 1.0, weight_decay: float = 0.1) -> AdamW:
    return AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=weight_decay, grad_clip=grad_clip
    )


@pytest.mark.parametrize("grad_clip", [0.05, 1e6])
def test_it_updates_as_torch_does(grad_clip: float) -> None:
    ours = small_model()
    theirs = copy.deepcopy(ours)
    optimizer = adamw(ours, grad_clip)
    groups = [
        {"params": [p for p in theirs.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, betas=(0.9, 0.95), foreach=False)
    for step in range(1, 6):
        lr = 0.01 * step
        norm = optimizer.step(backward(ours, scale=5, seed=step), lr)
        backward(theirs, scale=5, seed=step)
        for group in reference.param_groups:
            group["lr"] = lr
        expected_norm = nn.utils.clip_grad_norm_(theirs.parameters(), grad_clip)
        reference.step()
        reference.zero_grad()
        torch.testing.assert_close(norm, expected_norm)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.grad is None
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("broken", ["loss", "gradient", "infinite gradient"])
def test_nothing_is_updated_from_the_first_non_finite_step_on(broken: str) -> None:
    model = small_model()
    optimizer = adamw(model)
    optimizer.step(backward(model), lr=0.01)
    before = copy.deepcopy(model)
    loss = backward(model)
    if broken == "loss":
        loss = loss * math.nan
    else:
        known(next(model.parameters()).grad)[0, 0] = math.nan if broken == "gradient" else math.inf
    norm = optimizer.step(loss, lr=0.01)
    assert norm.isfinite() == (broken == "loss")
    optimizer.step(backward(model), lr=0.01)  # finite again, but too late
    for now, then in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(now, then)


def test_a_parameter_without_gradient_is_a_bug_and_says_so() -> None:
    model = small_model()
    with pytest.raises(RuntimeError, match=r"shape \(5, 6\) got no gradient"):
        adamw(model).step(torch.zeros(()), lr=0.1)
