"""The model on kernels computes the same function as written, with half the memory traffic."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.configs import PAIRWISE, config
from trainer.backends import linear_cross_entropy
from trainer.backends.compilation import load_kernels
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.memory.parts import chunk_tokens

CPU = torch.device("cpu")
SHAPE = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 48, "seq_len": 16, "batch_size": 3}
VOCAB = 257


def build(kernels: bool, **changes: Any) -> TorchGPT:
    torch.manual_seed(0)
    model = TorchBackend(kernels=kernels).build(config(**{**SHAPE, **changes}), VOCAB, CPU)
    return model.train()


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    stream_BT = torch.randint(VOCAB, (3, 17), generator=torch.Generator().manual_seed(seed))
    return stream_BT[:, :-1], stream_BT[:, 1:]


def gradients(model: TorchGPT) -> tuple[float, dict[str, Tensor]]:
    loss = model(*batch())
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.item(), found


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the logits held at once to 7 tokens of 48."""
    monkeypatch.setattr(
        linear_cross_entropy, "chunk_tokens", lambda tokens, *_: chunk_tokens(tokens, 1, 7)
    )


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n_kv_head", [None, 1])
@pytest.mark.parametrize(("activation", "norm", "positions", "tied"), PAIRWISE)
def test_loss_gradients_and_scores_are_those_of_the_model_as_written(
    activation: str, norm: str, positions: str, tied: bool, n_kv_head: int | None
) -> None:
    recipe = {
        "activation": activation,
        "norm": norm,
        "positions": positions,
        "tie_embeddings": tied,
        "n_kv_head": n_kv_head,
        "precision": "fp32",
    }
    written, on_kernels = build(False, **recipe), build(True, **recipe)
    (loss_a, wanted), (loss_b, got) = gradients(written), gradients(on_kernels)
    assert loss_b == pytest.approx(loss_a, rel=1e-6)
    assert got.keys() == wanted.keys() == dict(written.named_parameters()).keys()
    for name, gradient in wanted.items():
        assert got[name].dtype is torch.float32
        largest = gradient.abs().max().item()
        torch.testing.assert_close(got[name], gradient, rtol=0, atol=3e-6 * largest, msg=name)
    with torch.inference_mode():
        scores = [model.eval()(*batch(2)) for model in (written, on_kernels)]
        logits = [model.logits(batch(2)[0]) for model in (written, on_kernels)]
    assert scores[1].dtype is torch.float64
    torch.testing.assert_close(scores[1], scores[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_in_bf16_it_errs_no_more_than_the_model_as_written(activation: str) -> None:
    _, exact = gradients(build(False, precision="fp32", activation=activation))
    errors = []
    for kernels in (False, True):
        _, found = gradients(build(kernels, precision="bf16", activation=activation))
        distance = sum((found[n].double() - exact[n].double()).square().sum() for n in exact)
        errors.append(float(distance) ** 0.5)
    assert 0 < errors[1] < 1.05 * errors[0]


def test_in_fp8_it_errs_as_the_model_as_written() -> None:
    shape = {"d_ff": 64, "batch_size": 4}
    _, exact = gradients(build(False, precision="fp32", **shape))
    for name in ("blocks.0.qkv_RD", "blocks.1.down_DF", "embedding_VD"):
        errors = []
        for kernels in (False, True):
            _, found = gradients(build(kernels, precision="fp8", **shape))
            errors.append((found[name] - exact[name]).norm() / exact[name].norm())
        assert 0.001 < errors[1] < 1.3 * errors[0]


def test_it_gives_its_gradients_once() -> None:
    loss = build(True)(*batch())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        loss.backward()


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-4), ("bf16", 2e-2), ("fp8", 5e-2)])
def test_on_a_gpu_kernels_train_as_the_model_as_written(precision: str, near: float) -> None:
    losses = []
    for kernels in (False, True):
        torch.manual_seed(0)
        device = torch.device("cuda")
        recipe = config(**SHAPE, precision=precision)
        model = TorchBackend(kernels=kernels).build(recipe, VOCAB, device).train()
        optimizer = optimizer_of(model, recipe)
        for step in range(1, 11):
            loss = model(*(part.to(device) for part in batch(step)))
            loss.backward()
            optimizer.step(loss, 3e-3)
            losses.append(loss.item())
    assert losses[10:] == pytest.approx(losses[:10], rel=near)


@pytest.mark.gpu
@pytest.mark.slow
@on_a_gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_on_a_gpu_gradients_err_no_more_than_those_of_torchs_operators(
    precision: str, compile: bool
) -> None:
    """At the widths of the 354 M shape, where libraries and compilers choose other code."""
    device, vocab = torch.device("cuda"), 5000
    shape = {"n_layer": 2, "n_head": 16, "d_model": 1024, "d_ff": 4096, "seq_len": 512}
    stream_BT = torch.randint(vocab, (4, 513), device=device)

    def model_in(precision: str, **how: Any) -> TorchGPT:
        torch.manual_seed(0)
        recipe = config(**shape, precision=precision)
        return TorchBackend(**how).build(recipe, vocab, device).train()

    def gradient(model: TorchGPT) -> Tensor:
        model.zero_grad()
        model(stream_BT[:, :-1], stream_BT[:, 1:]).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(model_in("fp32", kernels=False))
    model = model_in(precision, compile=compile)
    found = gradient(model)
    with model.on_torch_operators():
        as_written = gradient(model)
    assert 0 < (found - exact).norm() < 1.1 * (as_written - exact).norm()


# --- copies of parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp8"])
def test_a_copy_follows_its_parameter_whoever_changes_it(precision: str) -> None:
    shape = {"d_ff": 64, "batch_size": 4}
    model = build(True, precision=precision, **shape)
    with torch.inference_mode():
        # the first use of the copies; training must still be able to use them
        model.eval()(*batch())
    model.train()
    before = model(*batch())
    before.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    after = model(*batch())
    fresh = build(True, precision=precision, **shape)
    with torch.no_grad():
        for p in fresh.parameters():
            p.mul_(1.5)
    assert after.item() == fresh(*batch()).item() != before.item()


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_the_update_that_writes_copies_is_the_update(precision: str) -> None:
    plain, with_copies = (build(kernels, precision=precision) for kernels in (False, True))
    assert len(plain.copies) == 0
    assert len(with_copies.copies) == (1 if precision == "fp32" else 9)
    one, other = (optimizer_of(m, m.config.model_copy(update={"weight_decay": 0.1}))
                  for m in (plain, with_copies))  # fmt: skip
    for step in range(1, 4):
        loss, found = gradients(plain)
        for name, p in with_copies.named_parameters():
            p.grad = found[name].clone()
        norms = [o.step(torch.tensor(loss), 0.01 * step) for o in (one, other)]
        torch.testing.assert_close(*norms)
    for (name, a), b in zip(plain.named_parameters(), with_copies.parameters(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-6, msg=name)
    for parameter, weight in with_copies.copies.items():
        copy = weight.copy
        assert torch.equal(copy[: parameter.shape[0]], parameter.to(copy.dtype))
        assert not copy[parameter.shape[0] :].any()


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_loading_all_kernels_leaves_the_model_as_it_was(precision: str) -> None:
    shape = {"d_ff": 64, "batch_size": 4}
    fresh, loaded = (build(True, precision=precision, **shape) for _ in "ab")
    seen: list[bool] = []
    loaded.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    load_kernels(loaded, batch())
    assert seen == [False, True], "scoring's kernels are loaded, too"
    assert loaded.training
    assert all(p.grad is None for p in loaded.parameters())
    for one, other in zip(fresh.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other)
    assert fresh(*batch(2)).item() == loaded(*batch(2)).item()


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_after_an_update_products_read_what_it_wrote(precision: str) -> None:
    shape = {"d_ff": 64, "batch_size": 4}
    model = build(True, precision=precision, **shape)
    optimizer = optimizer_of(model, model.config)
    losses = []
    for _ in range(3):
        loss = model(*batch())
        loss.backward()
        optimizer.step(loss, 0.01)
        losses.append(loss.item())
    fresh = build(True, precision=precision, **shape)
    fresh.load_state_dict(model.state_dict())
    assert model(*batch()).item() == fresh(*batch()).item() < losses[0]
