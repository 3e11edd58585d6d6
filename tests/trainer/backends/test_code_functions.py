"""The torch backend with functions of a config's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from autoresearch.errors import SpecError
from tests.support.configs import config
from trainer.backends import choose_backend
from trainer.backends.coded import CodeFailed
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchGPT
from trainer.code import SLOTS
from trainer.memory.estimate import parameter_count
from trainer.spec import Budget, Config
from trainer.training.schedule import Schedule

CPU = torch.device("cpu")
VOCAB = 61


def recipe(**changes: Any) -> Config:
    small = {
        "n_layer": 2,
        "n_head": 2,
        "d_model": 16,
        "d_ff": 32,
        "seq_len": 8,
        "precision": "fp32",
    }
    return config(**{**small, **changes})


def build(of: Config) -> TorchGPT:
    torch.manual_seed(1)
    model = choose_backend("torch").build(of, VOCAB, CPU)
    assert isinstance(model, TorchGPT)
    return model


def after_steps(of: Config, steps: int = 3) -> tuple[list[float], torch.Tensor]:
    """Return the losses of a few steps, and held-out losses after them."""
    model = build(of)
    optimizer = optimizer_of(model, of)
    stream = torch.arange(4 * 9).view(4, 9) * 7 % VOCAB
    losses = []
    for step in range(1, steps + 1):
        loss = model.train()(stream[:, :-1], stream[:, 1:])
        loss.backward()
        lr = Schedule(of, Budget(), 1000).lr(step, 0.0)
        optimizer.step(loss, lr)
        losses.append(loss.item())
    with torch.no_grad():
        return losses, model.eval()(stream[:, :-1], stream[:, 1:])


def written(slot: str, of: Config) -> str:
    """Return what is built in, as a source that is not recognized as such."""
    body = SLOTS[slot].body(getattr(of, SLOTS[slot].chosen_by, ""))
    assert body is not None
    return body.replace("return ", "return 1.0 * ")


CASES = [
    ("activation", {}),
    ("activation", {"activation": "relu2"}),
    ("gate", {"activation": "swiglu"}),
    ("gate", {"activation": "geglu"}),
    ("norm", {}),
    ("norm", {"norm": "rmsnorm", "norm_place": "sandwich"}),
    ("residual", {}),
    ("attention_scores", {"n_kv_head": 1, "positions": "rotary"}),
    ("logits", {}),
    ("schedule", {}),
    ("schedule", {"schedule": "linear"}),
    ("schedule", {"schedule": "wsd", "decay_share": 1.0}),
    ("update", {}),
    ("update_rest", {}),
    ("aux_loss", {}),
]


@pytest.mark.parametrize(("slot", "changes"), CASES)
def test_what_is_built_in_gives_the_same_numbers_as_a_function(
    slot: str, changes: dict[str, Any]
) -> None:
    """A model with the source trains as the one without, but for rounding."""
    plain = recipe(**changes)
    coded = recipe(**changes, **{f"code.{slot}": written(slot, plain)})
    assert coded.code
    losses, scored = after_steps(coded)
    wanted, wanted_scored = after_steps(plain)
    assert losses == pytest.approx(wanted, rel=2e-5)
    torch.testing.assert_close(scored, wanted_scored, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("tie", [True, False])
def test_learned_parameters_train_and_are_counted(tie: bool) -> None:
    of = recipe(
        tie_embeddings=tie,
        norm_place="sandwich",
        **{
            "code.activation": "def f(x, *, a: D = 1.0, b=0.5):\n    return F.gelu(x * a) * b",
            "code.norm": "def f(x, weight, *, c=0.5):\n    return x * weight * c",
            "code.residual": "def f(x, branch, layer, n_layer, *, g: D = 0.1):\n"
            "    return x + g * branch",
            "code.attention_scores": "def f(scores, *, cap=20.0):\n"
            "    return cap * torch.tanh(scores / cap)",
            "code.logits": "def f(z, *, bias: D = 0.0):\n    return z + bias",
        },
    )
    model = build(of)
    assert parameter_count(of, VOCAB) == sum(p.numel() for p in model.parameters())
    gain = model.get_parameter("blocks.1.attention_residual.g")
    assert gain.tolist() == pytest.approx([0.1] * 16)
    tokens = torch.arange(16).view(2, 8)
    loss = model.train()(tokens, tokens)
    loss.backward()
    optimizer_of(model, of).step(loss, 0.01)
    assert gain.tolist() != pytest.approx([0.1] * 16)


def test_a_config_without_functions_has_the_model_it_had() -> None:
    """No parameter, random draw or operator is added: the numbers are those of version 0.3.0."""
    losses, scored = after_steps(recipe())
    assert losses == pytest.approx([4.134578, 4.131686, 4.125896], abs=2e-6)
    assert scored.sum().item() == pytest.approx(131.750642, abs=2e-5)


def test_init_draws_the_blocks_matrices_by_seed() -> None:
    of = recipe(**{"code.init": "return torch.ones(shape) * (layer + 1)"})
    model = build(of)
    assert model.get_parameter("blocks.1.up_FD").unique().tolist() == [2.0]
    drawn = recipe(**{"code.init": "return 3.0 * torch.randn(shape, generator=generator) * std"})
    first, second = (build(drawn).get_parameter("blocks.0.qkv_RD") for _ in range(2))
    assert torch.equal(first, second)
    assert first.std().item() == pytest.approx(0.06, rel=0.2)


@pytest.mark.parametrize(
    ("slot", "source"),
    [
        ("activation", "return x.to(torch.float64)"),
        ("activation", "return x[..., :3]"),
        ("update", "return param[:1]"),
        ("update", "state.a = 3\nreturn param"),
        ("update", "\n".join(f"state.a{i} = grad" for i in range(7)) + "\nreturn param"),
        ("schedule", "return -1.0"),
        ("schedule", "return 2.0 * math.inf"),
        ("init", "return torch.ones(3)"),
        ("aux_loss", "return logits"),
    ],
)
def test_a_broken_contract_is_an_error_that_names_the_slot(slot: str, source: str) -> None:
    with pytest.raises(CodeFailed, match=f"{slot}|state"):
        after_steps(recipe(**{f"code.{slot}": source}), 1)


def test_kernels_and_compilation_step_aside_for_the_forward_pass_alone() -> None:
    def kinds(**code: str) -> tuple[str, ...]:
        return TorchGPT(recipe(**code), VOCAB, CPU, kernels=True).kernels

    assert kinds()
    assert kinds(**{"code.update": "return param - lr * grad.sign()"}) == kinds()
    assert kinds(**{"code.activation": "return F.silu(x)"}) == ()


def test_other_backends_refuse_functions() -> None:
    with pytest.raises(SpecError):
        choose_backend("megatron").check(recipe(**{"code.logits": "return 2.0 * z"}), CPU)
