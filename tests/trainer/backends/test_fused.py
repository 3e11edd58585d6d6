"""The model on kernels rounds no worse than as written, and its copies follow the parameters."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.configs import config
from tests.support.gpts import SMALL, VOCAB, batch, build, gradients
from trainer.backends.compilation import load_kernels
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.machine.host import lacking

SHAPE = {"d_ff": 64}
"""Sizes that fp8 needs."""


@pytest.mark.parametrize(
    ("changes", "names", "most"),
    [
        ({"precision": "bf16"}, (), 1.05),
        ({"precision": "bf16", "activation": "swiglu"}, (), 1.05),
        *(
            ({"precision": "fp8", "d_model": 64}, (name,), 1.3)
            for name in ("blocks.0.qkv_RD", "blocks.1.down_DF", "embedding_VD")
        ),
    ],
    ids=str,
)
def test_kernels_err_no_more(changes: dict[str, Any], names: tuple[str, ...], most: float) -> None:
    _, exact = gradients(build(**SHAPE, **{**changes, "precision": "fp32"}))
    errors = []
    for kernels in (False, True):
        _, found = gradients(build(kernels, **SHAPE, **changes))
        errors.append(sum((found[n] - exact[n]).square().sum().item() for n in names or exact))
    assert 0 < errors[1] < most**2 * errors[0]


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
        recipe = config(**{**SMALL, **SHAPE, "n_head": 2}, precision=precision)
        model = TorchBackend(kernels=kernels).build(recipe, VOCAB, device).train()
        optimizer = optimizer_of(model, recipe)
        for step in range(1, 11):
            loss = model(*(part.to(device) for part in batch(step)))
            loss.backward()
            optimizer.step(loss, 3e-3)
            losses.append(loss.item())
    assert losses[10:] == pytest.approx(losses[:10], rel=near)


def errors(precision: str, device: str, *, compile: bool, **shape: int) -> tuple[float, float]:
    """Return how far a step's gradients are from fp32's on kernels or compiled, and as written.

    Both are relative to fp32's norm, over all parameters together. Compiled code rounds at other
    places, so single elements may differ by much more than a rounding.
    """
    vocab, length = 5000, shape["seq_len"]
    generator = torch.Generator().manual_seed(1)
    stream_BT = torch.randint(vocab, (4, length + 1), generator=generator).to(device)

    def model_in(precision: str, **how: Any) -> TorchGPT:
        torch.manual_seed(0)
        recipe = config(**shape, precision=precision)
        return TorchBackend(**how).build(recipe, vocab, torch.device(device)).train()

    def gradient(model: TorchGPT) -> Tensor:
        model.zero_grad()
        model(stream_BT[:, :-1], stream_BT[:, 1:]).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(model_in("fp32", kernels=False))
    model = model_in(precision, compile=compile)
    found = gradient(model)
    with model.on_torch_operators():
        as_written = gradient(model)
    apart = [((one - exact).norm() / exact.norm()).item() for one in (found, as_written)]
    return apart[0], apart[1]


# Dynamo reads .grad of the residual stream. torch hides the warning about that when it is shown,
# which is too late for a filter that turns warnings into errors.
compiler_warns = pytest.mark.filterwarnings("ignore")


@pytest.mark.gpu
@pytest.mark.slow
@on_a_gpu
@compiler_warns
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_on_a_gpu_gradients_err_no_more_than_torchs_own(precision: str, compile: bool) -> None:
    """At the widths of the 354 M shape, where libraries and compilers choose other code."""
    shape = {"n_layer": 2, "n_head": 16, "d_model": 1024, "d_ff": 4096, "seq_len": 512}
    found, as_written = errors(precision, "cuda", compile=compile, **shape)
    assert 0 < found < 1.1 * as_written


@pytest.mark.slow
@pytest.mark.skipif(lacking("cpu") is not None, reason="nothing can be compiled here")
@compiler_warns
@pytest.mark.parametrize(("precision", "by"), [("bf16", "inductor"), ("fp8", "aot_eager")])
def test_compiled_gradients_err_no_more_than_torchs_own(
    precision: str, by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same on a CPU, for which Inductor makes no code in fp8."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=by))
    torch.compiler.reset()
    shape = {"n_layer": 2, "n_head": 4, "d_model": 64, "d_ff": 256, "seq_len": 64}
    found, as_written = errors(precision, "cpu", compile=True, **shape)
    torch.compiler.reset()
    assert 0 < found < 1.1 * as_written


# --- copies of parameters ------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp8"])
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


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_loading_all_kernels_leaves_the_model_as_it_was(precision: str) -> None:
    fresh, loaded = (build(True, precision=precision, **SHAPE) for _ in "ab")
    seen: list[bool] = []
    loaded.register_forward_pre_hook(lambda module, _: seen.append(module.training))
    load_kernels(loaded, batch())
    assert seen == [False, True], "scoring's kernels are loaded, too"
    assert loaded.training
    assert all(p.grad is None for p in loaded.parameters())
    for one, other in zip(fresh.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, other)
    assert fresh(*batch(2)).item() == loaded(*batch(2)).item()
