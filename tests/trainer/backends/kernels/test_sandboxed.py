"""Triton compiles inside the sandbox of a trial, and the next trial finds what it compiled."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton has no wheel for this machine"
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_trial_compiles_kernels_and_the_next_one_loads_them(tmp_path: Path) -> None:
    cache, corpus = tmp_path / "campaign" / "compiled", tmp_path / "corpus"
    corpus.mkdir()
    entry = "tests.trainer.backends.kernels.cubins:compile_activations"
    with LocalExecutor(entry=entry, allow_unsandboxed=True) as executor:
        made = []
        for number in range(2):
            trial_dir = tmp_path / "campaign" / "trials" / str(number)
            # On CUDA it would be for the device alone; here compile opens the same cache.
            spec = trial_spec(corpus, compile=True, compile_cache=str(cache), wall_s=200, threads=1)
            executor.run(spec, trial_dir)
            said = (trial_dir / "trainer.log").read_text()
            assert said.count("sm_90 ") == 16, said
            made.append({path: path.stat().st_mtime_ns for path in cache.rglob("*.cubin")})
    assert len(made[0]) == 16
    assert made[1] == made[0], "the second trial compiled nothing"
