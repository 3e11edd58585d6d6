"""Provide executors with and without each layer of the sandbox, and attacks on them.

Each attack also runs without the layer that should stop it, where it must succeed: an attack that
cannot work proves nothing.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import hostile, kernel_attacks
from tests.support.trials import by_command, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.spec import ScoredText

SECRET = "the-secret"


@pytest.fixture(scope="package")
def confined() -> Iterator[LocalExecutor]:
    environ = {**os.environ, "OPENAI_API_KEY": SECRET, "NVIDIA_API_KEY": SECRET, "OMP_X": "kept"}
    with LocalExecutor(entry=kernel_attacks.ENTRY, environ=environ) as executor:
        yield executor


@pytest.fixture(scope="package")
def unconfined() -> Iterator[LocalExecutor]:
    layers, entry = Layers(0, seccomp=False), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, layers=layers, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture(params=["trainer", pytest.param("command", marks=pytest.mark.slow)])
def door(request: pytest.FixtureRequest) -> str:
    """Return how code gets to run in a trial: as the built-in trainer, or as a menu's command."""
    return str(request.param)


@pytest.fixture
def attack(tmp_path: Path, door: str) -> Callable[..., Any]:
    """Run an attack in a fresh trial of the executor, on ``device``; return its loot."""

    def attack(
        executor: LocalExecutor,
        what: Callable[..., Any],
        /,
        *,
        device: str = "cpu",
        texts: tuple[ScoredText, ...] = (),
        **arguments: object,
    ) -> Any:
        # a directory of its own, as a campaign's trials have
        trials = tmp_path / "campaign" / "trials"
        number = len(list(trials.iterdir())) if trials.exists() else 0
        trial_dir = hostile.arm(trials / str(number), what, **arguments)
        corpus = tmp_path / "corpus"
        corpus.mkdir(exist_ok=True)
        (corpus / "tokens").write_text("the corpus")
        # only megatron leaves the import of torch, and its start on a GPU, to the trial
        backend = "megatron" if device == "cuda" else "torch"
        spec = trial_spec(corpus, device=device, backend=backend, texts=texts, file_bytes=8 << 20)
        if door == "command" and not texts:
            spec = by_command(spec)
        result = executor.run(spec, trial_dir).result
        assert result.status == ("no_score" if spec.command else "crash"), result
        return hostile.loot(trial_dir)

    return attack
