"""The model on kernels rounds no worse than as written, and its copies follow the parameters."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.configs import config
from tests.support.gpts import SMALL, VOCAB, batch, build, gradients
from trainer.backends.compilation import load_kernels
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT

SHAPE = {"d_ff": 64}


@pytest.mark.parametrize(
    "changes", [{"precision": "bf16"}, {"precision": "bf16", "activation": "swiglu"}], ids=str
)
def test_kernels_err_no_more(changes: dict[str, Any]) -> None:
    _, exact = gradients(build(**SHAPE, **{**changes, "precision": "fp32"}))
    errors = []
    for kernels in (False, True):
        _, found = gradients(build(kernels, **SHAPE, **changes))
        errors.append(sum((found[n] - exact[n]).square().sum().item() for n in exact))
    assert 0 < errors[1] < 1.05**2 * errors[0]


def test_it_gives_its_gradients_once() -> None:
    loss = build(True)(*batch())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError):
        loss.backward()


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-4), ("bf16", 2e-2)])
def test_on_a_gpu_kernels_train_as_the_model_as_written(precision: str, near: float) -> None:
    losses = []
    for kernels in (False, True):
        torch.manual_seed(0)
        device = torch.device("cuda")
        recipe = config(**{**SMALL, **SHAPE, "n_head": 2}, precision=precision)
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
def test_on_a_gpu_gradients_err_no_more_than_torchs_own() -> None:
    """At the widths of the 354 M shape, where libraries choose other code. Errors are relative to
    fp32's norm, over all parameters together."""
    vocab, shape = 5000, {"n_layer": 2, "n_head": 16, "d_model": 1024, "d_ff": 4096, "seq_len": 512}
    generator = torch.Generator().manual_seed(1)
    stream_BT = torch.randint(vocab, (4, 513), generator=generator).cuda()

    def model_in(precision: str, **how: Any) -> TorchGPT:
        torch.manual_seed(0)
        recipe = config(**shape, precision=precision)
        return TorchBackend(**how).build(recipe, vocab, torch.device("cuda")).train()

    def gradient(model: TorchGPT) -> Tensor:
        model.zero_grad()
        model(stream_BT[:, :-1], stream_BT[:, 1:]).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(model_in("fp32", kernels=False))
    model = model_in("bf16")
    found = gradient(model)
    with model.on_torch_operators():
        as_written = gradient(model)
    assert 0 < (found - exact).norm() < 1.1 * (as_written - exact).norm()


# --- copies of parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_copy_follows_its_parameter_whoever_changes_it(precision: str) -> None:
    model, fresh = (build(True, precision=precision, **SHAPE) for _ in "ab")
    with torch.inference_mode():
        # the first use of the copies; training must still be able to use them
        model.eval()(*batch())
    before = model.train()(*batch())
    before.backward()
    with torch.no_grad():
        for p in (*model.parameters(), *fresh.parameters()):
            p.mul_(1.5)
    assert model(*batch()).item() == fresh(*batch()).item() != before.item()
    optimizer = optimizer_of(model, model.config)
    for _ in range(2):
        loss = model(*batch())
        loss.backward()
        optimizer.step(loss, 0.01)
    fresh.load_state_dict(model.state_dict())
    assert model(*batch()).item() == fresh(*batch()).item() < loss.item()


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


def test_loading_all_kernels_leaves_the_model_as_it_was() -> None:
    fresh, loaded = (build(True, precision="bf16", **SHAPE) for _ in "ab")
    seen: list[bool] = []
    loaded.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    load_kernels(loaded, batch())
    assert seen == [False, True], "scoring's kernels are loaded, too"
    assert loaded.training
    assert all(p.grad is None for p in loaded.parameters())
    for one, other in zip(fresh.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other)
    assert fresh(*batch(2)).item() == loaded(*batch(2)).item()
