"""Test the promises of every backend, whatever it builds models of.

The tests run on a CPU, with CUDA's stand-in for a backend that supports nothing else.
"""

import math
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from autoresearch.errors import SpecError
from tests.support.gpts import recipe as small
from tests.support.megatron_on_cpu import QUIET, one_rank
from trainer.backends import BACKENDS, Backend, choose_backend
from trainer.backends.optimizer import BringsOptimizer, optimizer_of
from trainer.schema import BackendName, Config

pytestmark = [
    *QUIET,
    pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning"),
]
VOCAB = 300
CPU = torch.device("cpu")
CHOICES = {
    "gpt-2": {"activation": "gelu", "norm": "layernorm", "positions": "learned"},
    "llama": {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"},
}


@pytest.fixture(params=get_args(BackendName))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    chosen = choose_backend(request.param)
    if not request.param.startswith("megatron"):
        yield chosen
        return
    with one_rank(monkeypatch):
        yield chosen


@pytest.fixture(
    params=[
        ("gpt-2", "fp32"),
        ("llama", "bf16"),
        pytest.param(("gpt-2", "bf16"), marks=pytest.mark.slow),
        pytest.param(("llama", "fp32"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def recipe(request: pytest.FixtureRequest) -> Config:
    name, precision = request.param
    return small(precision=precision, **CHOICES[name])


def build(backend: Backend, recipe: Config, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return backend.build(recipe, VOCAB, CPU)


def stream(rows: int = 4, length: int = 16) -> tuple[Tensor, Tensor]:
    drawn_BT = torch.randint(VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(5))
    return drawn_BT[:, :-1], drawn_BT[:, 1:]


def likelihoods(model: torch.nn.Module, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        nll_BT: Tensor = model(tokens_BT, targets_BT)
    return nll_BT


def test_the_first_loss_is_near_that_of_knowing_nothing(backend: Backend, recipe: Config) -> None:
    loss = build(backend, recipe).train()(*stream())
    assert (loss.dtype, loss.shape) == (torch.float32, ())
    assert loss.item() == pytest.approx(math.log(VOCAB), rel=0.05)


def test_evaluation_scores_each_target_in_fp64(backend: Backend, recipe: Config) -> None:
    model = build(backend, recipe)
    nll_BT = likelihoods(model, *stream())
    assert (nll_BT.dtype, nll_BT.shape) == (torch.float64, (4, 16))
    assert bool((nll_BT > 0).all())
    trained = model.train()(*stream()).item()
    tolerance = 1e-5 if recipe.precision == "fp32" else 1e-2
    assert nll_BT.mean().item() == pytest.approx(trained, abs=tolerance)


def test_all_words_together_are_certain(backend: Backend) -> None:
    """The likelihoods of all words after the same text add up to one; each word has its own."""
    model = build(backend, small())
    tokens_BT, targets_BT = (each[:1].repeat(VOCAB, 1) for each in stream(1))
    targets_BT[:, -1] = torch.arange(VOCAB)
    total = (-likelihoods(model, tokens_BT, targets_BT)[:, -1]).exp().sum().item()
    assert total == pytest.approx(1, abs=1e-9)


def test_shorter_sequences_are_scored_alike(backend: Backend, recipe: Config) -> None:
    model = build(backend, recipe)
    tokens_BT, targets_BT = stream()
    whole = likelihoods(model, tokens_BT, targets_BT)[:, :7]
    part = likelihoods(model, tokens_BT[:, :7], targets_BT[:, :7])
    assert torch.allclose(part, whole, atol=1e-5 if recipe.precision == "fp32" else 0.05)


def test_a_token_sees_no_future_and_no_neighbour(backend: Backend, recipe: Config) -> None:
    model = build(backend, recipe)
    tokens_BT, targets_BT = stream()
    before = likelihoods(model, tokens_BT, targets_BT)
    changed_BT = tokens_BT.clone()
    changed_BT[0, 9] = (changed_BT[0, 9] + 1) % VOCAB
    after = likelihoods(model, changed_BT, targets_BT)
    assert torch.equal(after[0, :9], before[0, :9])
    assert torch.equal(after[1:], before[1:])
    assert not torch.equal(after[0, 9:], before[0, 9:])


def test_every_parameter_is_trained(backend: Backend, recipe: Config) -> None:
    model = build(backend, recipe).train()
    model(*stream()).backward()
    parameters = list(model.parameters())
    assert parameters
    for parameter in parameters:
        assert parameter.dim() in {1, 2}
        if not isinstance(model, BringsOptimizer):
            assert parameter.dtype is torch.float32
            assert parameter.grad is not None
            assert bool(parameter.grad.isfinite().all())
            assert bool(parameter.grad.any())


def test_only_the_same_seed_is_the_same_model(backend: Backend, recipe: Config) -> None:
    first, again, other = (likelihoods(build(backend, recipe, s), *stream()) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_it_cannot_train_is_refused_before_anything_is_built(backend: Backend) -> None:
    with pytest.raises(SpecError) as refusal:
        backend.check(small(precision="fp8"), CPU)
    assert "\n" not in str(refusal.value)


def test_steps_lower_the_loss_of_what_they_are_trained_on(backend: Backend, recipe: Config) -> None:
    model = build(backend, recipe).train()
    optimizer = optimizer_of(model, recipe)
    losses = []
    for _ in range(12):
        loss = model(*stream())
        loss.backward()
        assert optimizer.step(loss.detach(), 1e-2).isfinite()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5


def test_every_name_that_a_spec_may_have_is_a_backend() -> None:
    assert set(BACKENDS) == set(get_args(BackendName))
    assert [choose_backend(name).name for name in BACKENDS] == list(BACKENDS)


def test_another_name_is_refused() -> None:
    name: Any = "jax"
    with pytest.raises(SpecError):
        choose_backend(name)
