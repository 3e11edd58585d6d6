"""Test a config's own functions in the model and the optimizer, and the keys of their cache."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from autoresearch.errors import SpecError
from tests.support import gpts, hostile
from tests.support.commands import command
from tests.support.places import ROOT
from tests.support.stub_cuda import build_stub, make_machine
from tests.support.trials import on_gpu, trial_spec
from trainer.backends import choose_backend
from trainer.backends.optimizer import optimizer_of
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.code import SLOTS
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.memory.estimate import parameter_count
from trainer.schema import Budget, BuiltIn, Config
from trainer.training.schedule import Schedule

CPU = torch.device("cpu")
VOCAB = 61


def recipe(**changes: Any) -> Config:
    return gpts.recipe(**{"n_head": 2, "d_model": 16, "d_ff": 32, "seq_len": 8, **changes})


def build(of: Config) -> TorchGPT:
    torch.manual_seed(1)
    return TorchBackend().build(of, VOCAB, CPU)


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
def test_a_built_in_part_as_a_function_gives_the_same(slot: str, changes: dict[str, Any]) -> None:
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


def test_kernels_step_aside_for_the_forward_pass_alone() -> None:
    def has_kernels(**code: str) -> bool:
        return TorchGPT(recipe(**code), VOCAB, CPU, kernels=True).has_kernels

    assert has_kernels()
    assert has_kernels(**{"code.update": "return param - lr * grad.sign()"})
    assert not has_kernels(**{"code.activation": "return F.silu(x)"})


def test_other_backends_refuse_functions() -> None:
    with pytest.raises(SpecError):
        choose_backend("megatron").check(recipe(**{"code.logits": "return 2.0 * z"}), CPU)


# Runs in its own process, so that Triton and the compiler are in a fork server's state.
SERVER = """
import hashlib, os, sys

asked = []
def spy(event, arguments):
    # Libraries that are loaded and files that are opened. The driver's is libcuda.so; libcudart.so
    # is the runtime's, which a torch that is a build with CUDA loads as it is imported.
    if event in {"ctypes.dlopen", "open"} and any(
        word in str(arguments[0]) for word in ("libcuda.so", "/dev/nvidia", "/proc/driver/nvidia")
    ):
        asked.append(str(arguments[0]))
sys.addaudithook(spy)

import torch
import torch._dynamo, torch._inductor.compile_fx
from trainer.backends.compilation import compute_keys
compute_keys()
compute_keys()

if os.fork() == 0:
    def refuse(*_):
        raise AssertionError("hashed again after the fork")
    hashlib.sha256 = refuse
    from triton.runtime.cache import triton_key
    triton_key()
    from torch._inductor.codecache import torch_key
    torch_key()
    import triton
    assert triton.runtime.driver._active is None, "Triton looked for its device"
    assert not torch.cuda.is_initialized()
    assert not asked, asked
    print("found", flush=True)
    os._exit(0)
assert os.wait()[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
def test_a_forked_trial_finds_the_keys_and_no_device_was_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "found\n", done.stderr[-3000:]
    assert done.returncode == 0


def test_only_trials_that_compile_something_have_anything_done_ahead_and_a_cache() -> None:
    assert BuiltIn().imports("torch", "cpu") == ()
    megatron = "trainer.machine.megatron_packages:preload"
    assert BuiltIn().imports("megatron", "cuda") == (megatron,)
    keys = "trainer.backends.compilation:compute_keys"
    assert BuiltIn().imports("torch", "cuda:1") == (keys,)
    assert "torch._dynamo" in command(preload=("torch",)).imports("torch", "cpu")
    assert trial_spec(compile_cache="/x").code_cache is None
    assert trial_spec(compile_cache="/x", device="cuda").code_cache == "/x"


@pytest.mark.slow
@pytest.mark.skipif(Layers.detect().landlock_abi < 1, reason="this kernel has no Landlock")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
def test_a_kernel_that_refuses_renames_keeps_compiled_code(tmp_path: Path) -> None:
    """ABI 1 enforces a ruleset without the right to move files between directories."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.keep_code)
    for name in ("library", "machine"):
        (tmp_path / name).mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    spec = on_gpu(compile_cache=str(tmp_path / "cache"), wall_s=120)
    with LocalExecutor(
        layers=Layers(1, seccomp=False),
        entry=hostile.ENTRY,
        environ=machine.environ(),
        root=machine.root,
    ) as executor:
        executor.run(spec, trial_dir)
    loot = hostile.loot(trial_dir)
    assert loot["kept"] == ["kernel", "kernel"]
    assert loot["moved_between_directories"] is False


def test_what_an_old_landlock_leaves_open_is_named() -> None:
    opened = [len(Layers(abi, seccomp=True).open) for abi in range(1, 8)]
    assert opened == [4, 4, 3, 2, 1, 0, 0]
    assert all(what in Layers(1, seccomp=True).describe() for what in Layers(1, True).open)
