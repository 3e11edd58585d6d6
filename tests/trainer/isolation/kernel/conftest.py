"""Provide executors with and without each layer of the sandbox, and attacks on them.

Each attack also runs without the layer that should stop it, where it must succeed: an attack that
cannot work proves nothing.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import hostile, kernel_attacks
from tests.support.doors import IN_A_WORLD, TRAINER, WITHOUT
from tests.support.stub_cuda import StubMachine
from tests.support.trials import by_command, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import ScoredText

SECRET = "the-secret"
HERE = Layers.detect()


@pytest.fixture(scope="package")
def confined() -> Iterator[LocalExecutor]:
    """Yield an executor with all layers; its commands have worlds of their own."""
    with LocalExecutor(entry=kernel_attacks.ENTRY, environ=_environ()) as executor:
        yield executor


@pytest.fixture(scope="package")
def without_namespaces() -> Iterator[LocalExecutor]:
    layers, entry = replace(HERE, world=False), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, environ=_environ(), layers=layers) as executor:
        yield executor


@pytest.fixture(scope="package")
def unconfined() -> Iterator[LocalExecutor]:
    layers, entry = Layers(0, seccomp=False), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, layers=layers, allow_unsandboxed=True) as executor:
        yield executor


def _environ() -> dict[str, str]:
    return {**os.environ, "OPENAI_API_KEY": SECRET, "NVIDIA_API_KEY": SECRET, "OMP_X": "kept"}


@pytest.fixture(
    params=[
        TRAINER,
        *(pytest.param(door, marks=pytest.mark.slow) for door in (IN_A_WORLD, WITHOUT)),
    ]
)
def door(request: pytest.FixtureRequest) -> str:
    """Return how code gets to run in a trial: as the built-in trainer, or as a menu's command, in a
    world of its own or where no namespaces can be had."""
    if request.param == IN_A_WORLD and not HERE.world:
        pytest.skip("this machine allows no namespaces")
    return str(request.param)


@pytest.fixture
def sandboxed(request: pytest.FixtureRequest, door: str) -> LocalExecutor:
    """Return the executor whose trials run in the sandbox of this door."""
    name = "without_namespaces" if door == WITHOUT else "confined"
    executor: LocalExecutor = request.getfixturevalue(name)
    return executor


@pytest.fixture
def sandboxed_with_gpu(
    gpu_machine: StubMachine, confined_with_gpu: LocalExecutor, door: str
) -> Iterator[LocalExecutor]:
    """Yield the executor of this door on a machine where a GPU's driver starts."""
    if door != WITHOUT:
        yield confined_with_gpu
        return
    environ, root = gpu_machine.environ(), gpu_machine.root
    layers, entry = replace(HERE, world=False), kernel_attacks.ENTRY
    with LocalExecutor(entry=entry, environ=environ, root=root, layers=layers) as executor:
        yield executor


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
        if door != TRAINER and not texts:
            spec = by_command(spec)
        result = executor.run(spec, trial_dir).result
        assert result.status == ("no_score" if spec.command else "crash"), result
        return hostile.loot(trial_dir)

    return attack
