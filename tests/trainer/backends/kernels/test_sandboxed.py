"""Triton compiles inside a trial's sandbox, and the next trial reuses the compiled code."""

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.stub_cuda import build_stub, make_machine
from tests.support.trials import on_gpu, trial_spec
from tests.trainer.backends.kernels import launchers
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton has no wheel for this machine"
)
ON_CPU = "tests.trainer.backends.kernels.on_cpu:compile_activations"
"""For the fork server alone to import: it opens the cache to every trial of its process."""
TRITON_LAUNCHES_ALL_ALIKE = find_spec("triton") is not None and [
    int(part) for part in version("triton").split(".")[:2]
] >= [3, 7]


@pytest.mark.slow
def test_a_trial_compiles_kernels_and_the_next_one_loads_them(tmp_path: Path) -> None:
    cache, corpus = tmp_path / "campaign" / "compiled", tmp_path / "corpus"
    corpus.mkdir()
    with LocalExecutor(entry=ON_CPU, allow_unsandboxed=True) as executor:
        made = []
        for number in range(2):
            trial_dir = tmp_path / "campaign" / "trials" / str(number)
            spec = trial_spec(corpus, compile_cache=str(cache), threads=1)
            executor.run(spec, trial_dir)
            said = (trial_dir / "trainer.log").read_text()
            assert said.count("sm_90 ") == 16, said
            made.append({path: path.stat().st_mtime_ns for path in cache.rglob("*.cubin")})
    assert len(made[0]) == 16
    assert made[1] == made[0], "the second trial compiled nothing"


@pytest.mark.slow
@pytest.mark.skipif(Layers.detect().landlock_abi < 5, reason="this kernel confines no CUDA trial")
def test_a_trial_on_a_gpu_builds_and_loads_tritons_helper_and_launcher(tmp_path: Path) -> None:
    """The rules are those of a trial on a GPU. Triton links with the stand-in for libcuda."""
    for name in ("library", "machine"):
        (tmp_path / name).mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    trial_dir = tmp_path / "campaign" / "trials" / "t1"
    with LocalExecutor(
        entry=launchers.ENTRY, environ=machine.environ(), root=machine.root
    ) as executor:
        executor.run(on_gpu(), trial_dir)
    built = json.loads((trial_dir / "built.json").read_text())
    assert built == ["CudaUtils", "builtin_function_or_method"][: 2 - TRITON_LAUNCHES_ALL_ALIKE]
