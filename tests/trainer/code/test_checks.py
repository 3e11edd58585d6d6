"""Dynamic rails of code knobs: what runs on small tensors and models, and what is refused there."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from agent.menu.files import load_menu
from agent.menu.rails import Rails
from tests.support.configs import config
from trainer.backends.coded import CodeFailed, check_causality
from trainer.backends.torch_gpt import TorchBackend
from trainer.code_check import CodeRunner
from trainer.code_check.checks import verdict_on

GOOD = {
    "squared ReLU": ("activation", "return F.relu(x).square()"),
    "learned slope": ("activation", "def f(x, *, a: D = 0.1):\n    return torch.maximum(a * x, x)"),
    "soft-capped scores": ("attention_scores", "return 20.0 * torch.tanh(scores / 20.0)"),
    "layer scale": (
        "residual",
        "def f(x, branch, layer, n_layer, *, g: D = 0.1):\n    return x + g * branch",
    ),
    "warm-up, then constant": ("schedule", "return min(1.0, step / (warmup + 1))"),
    "uniform": ("init", "return (torch.rand(shape, generator=generator) - 0.5) * std"),
    "Lion": (
        "update",
        "u = 0.9 * state.m + 0.1 * grad\nstate.m = 0.99 * state.m + 0.01 * grad\n"
        "return param - 0.1 * lr * torch.sign(u)",
    ),
    "z-loss": ("aux_loss", "return 1e-4 * logits.logsumexp(-1).square().mean()"),
}
BAD = {
    "exponential": ("activation", "return torch.exp(x)"),
    "root of a negative": ("activation", "return torch.sqrt(x)"),
    "no epsilon": ("norm", "return x * x.square().mean(-1, keepdim=True).rsqrt() * weight"),
    "division by zero": ("activation", "return x * x / x"),
    "infinite slope": ("activation", "return x.abs().sqrt()"),
    "no gradient": ("activation", "return torch.zeros_like(x)"),
    "unused weight": ("norm", "return x"),
    "unused branch": ("residual", "return x + 0.0 * branch.detach()"),
    "unused parameter": ("activation", "def f(x, *, a=1.0):\n    return F.gelu(x)"),
    "other dtype": ("logits", "return z.to(torch.bfloat16)"),
    "other shape": ("activation", "return x[..., :3]"),
    "wider by broadcasting": ("activation", "return x + torch.ones(1, device=x.device)[..., :0]"),
    "number": ("logits", "return 1.0"),
    "condition on a tensor": ("activation", "if x > 0:\n    return x\nreturn -x"),
    "unset variable": ("activation", "if 1 > 2:\n    y = x\nreturn y"),
    "huge rate": ("schedule", "return 100.0"),
    "rate that is no number": ("schedule", "return 0 * math.inf"),
    "weights of another shape": ("init", "return torch.zeros(3)"),
    "weights that are no numbers": ("init", "return torch.zeros(shape) / torch.zeros(shape)"),
    "overflow": ("update", "return param - lr * grad ** 9 / grad ** 8"),
    "matrix only": ("update_rest", "return param - lr * grad.T.T @ grad"),
    "state of another size": (
        "update",
        "state.m = torch.outer(grad.flatten(), grad.flatten())\nreturn param - lr * grad",
    ),
    "state that is no tensor": ("update", "state.m = 1.0\nreturn param - lr * grad"),
    "seven states": (
        "update",
        "\n".join(f"state.a{i} = grad" for i in range(7)) + "\nreturn param - lr * grad",
    ),
    "rate below zero": ("schedule", "return -1.0"),
    "infinite loss": ("aux_loss", "return logits.exp().exp().sum() * 1e30"),
    "many losses": ("aux_loss", "return logits"),
    "slow": ("activation", "for i in range(60):\n    x = x + 0.001 * torch.sin(x)\nreturn x"),
    "slow later": (
        "update",
        "if step > 20:\n    for i in range(60):\n        grad = grad @ grad.T @ grad * 1e-6\n"
        "return param - lr * grad",
    ),
    "slow in a window": (
        "update",
        "x = grad\nif 150 < step:\n    if step < 400:\n        for i in range(60):\n"
        "            x = torch.linalg.qr(x)[0]\n"
        "return param - lr * grad + 0.0 * x.sum()",
    ),
    "hoards memory": (
        "residual",
        "for i in range(30):\n    x = x + 0.01 * torch.tanh(x) * torch.sigmoid(branch)\n"
        "return x + branch",
    ),
}


def verdict(slot: str, source: str, **changes: Any) -> str:
    small = {"n_layer": 1, "d_model": 32, "d_ff": 64, "seq_len": 32, "n_head": 2, **changes}
    return verdict_on(config(**small, **{f"code.{slot}": source}), 2.0).why


@pytest.mark.parametrize("name", GOOD)
def test_a_good_function_passes(name: str) -> None:
    assert verdict(*GOOD[name], n_layer=2, d_model=128, d_ff=512, seq_len=128) == ""


@pytest.mark.parametrize("name", BAD)
def test_a_bad_function_is_refused_in_one_sentence(name: str) -> None:
    why = verdict(*BAD[name])
    assert BAD[name][0] in why or "state" in why
    assert 20 < len(why) < 400


class Leaky(torch.nn.Module):
    """A model one of whose activations does what no source can say: it mixes rows or remembers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        by_sequence = x.view(-1, 12, x.shape[-1]) if x.shape[0] % 12 == 0 else x[None]
        if self.kind == "future":
            return (by_sequence + 0.01 * by_sequence.mean(1, keepdim=True)).view_as(x)
        if self.kind == "rows":
            return x + 0.01 * x.mean(0, keepdim=True)
        if self.kind == "evaluation" and not self.training:
            return x + 0.01 * x.roll(-1, 0)
        return x


@pytest.mark.parametrize(
    ("kind", "leaks"), [("future", True), ("rows", True), ("evaluation", True), ("none", False)]
)
def test_a_model_whose_tokens_see_others_is_refused(kind: str, leaks: bool) -> None:
    """The static rails stop such functions; this rail would stop one that got past them."""
    of = config(n_layer=1, d_model=32, d_ff=32, n_head=2, seq_len=12, precision="fp32")
    torch.manual_seed(0)
    model = TorchBackend().build(of, 61, torch.device("cpu"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    for block in model.blocks:
        block.activation_code = Leaky(kind)
    tokens = torch.randint(61, (5, 12))
    with pytest.raises(CodeFailed) if leaks else nullcontext():
        check_causality(model, tokens, of)


@pytest.mark.slow
def test_the_rails_run_code_in_a_sandbox_once() -> None:
    menu = load_menu("cpu-tiny-code")
    rails = Rails(menu, budget=menu.campaign.budget)
    rails.run_code = CodeRunner()

    def reply(source: str) -> str:
        return json.dumps({"changes": {"code.activation": source}, "reason": "r"})

    assert rails.check(reply("return F.silu(x)"), menu.baseline).verdict.allowed
    refused = rails.check(reply("return torch.exp(x)"), menu.baseline).verdict
    assert (refused.allowed, refused.rail) == (False, "code_run")
    assert rails.check(reply("return open(0)"), menu.baseline).verdict.rail == "code"
    hungry = config(
        **{"code.update": "x = torch.ones(100000)\nx = torch.outer(x, x)\nreturn param"}
    )
    assert "update" in CodeRunner()(hungry)
