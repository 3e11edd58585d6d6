"""The compilers' cache keys are computed before the fork and valid after it, without a device
query."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import hostile
from tests.support.places import ROOT
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.supervisor import _imports
from trainer.spec import makes_code

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
if "compile" in sys.argv:
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
    if "compile" in sys.argv:
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
        [sys.executable, "-W", "ignore", "-c", SERVER, "compile"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "found\n", done.stderr[-3000:]
    assert done.returncode == 0


def test_only_trials_that_compile_something_have_anything_done_ahead() -> None:
    assert _imports(trial_spec()) == ()
    assert _imports(trial_spec(device="cuda", backend="megatron")) == ()
    keys = "trainer.backends.compilation:compute_keys"
    assert _imports(trial_spec(device="cuda:1")) == (keys,)
    assert _imports(trial_spec(compile=True))[-1] == keys
    assert "torch._dynamo" in _imports(trial_spec(compile=True))


def test_the_cache_is_of_those_trials_alone() -> None:
    assert trial_spec(compile_cache="/x").code_cache is None
    assert trial_spec(compile_cache="/x", compile=True).code_cache == "/x"
    assert trial_spec(compile_cache="/x", device="cuda").code_cache == "/x"
    assert not makes_code("megatron", "cuda", compile=False)


@pytest.mark.slow
@pytest.mark.skipif(Layers.detect().landlock_abi < 1, reason="this kernel has no Landlock")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
def test_a_kernel_that_refuses_renames_keeps_compiled_code(tmp_path: Path) -> None:
    """ABI 1 enforces a ruleset without the right to move files between directories."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.keep_code)
    spec = trial_spec(
        compile=True, backend="torch", compile_cache=str(tmp_path / "cache"), wall_s=120
    )
    layers = Layers(1, seccomp=False)
    with LocalExecutor(layers=layers, entry="tests.support.hostile_trainer:run") as executor:
        executor.run(spec, trial_dir)
    loot = hostile.loot(trial_dir)
    assert loot["kept"] == ["kernel", "kernel"]
    assert loot["moved_between_directories"] is False


def test_what_an_old_landlock_leaves_open_is_named() -> None:
    opened = [len(Layers(abi, seccomp=True).open) for abi in range(1, 8)]
    assert opened == [4, 4, 3, 2, 1, 0, 0]
    assert all(what in Layers(1, seccomp=True).describe() for what in Layers(1, True).open)
