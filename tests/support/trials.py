"""Provide specs and results of trials that train nothing."""

import sys
from pathlib import Path
from typing import Any

from tests.support.commands import PATIENT_S, command, command_spec
from tests.support.configs import config
from tests.support.places import ROOT
from tests.support.rows import ok
from trainer.corpus import Corpus
from trainer.schema import Budget, Limits, TrialOk, TrialSpec


def trial_spec(corpus_dir: Path | str = "/nonexistent", **changes: Any) -> TrialSpec:
    """Return a spec for the executor, with any field changed, those of its limits included."""
    limits = {name: changes.pop(name) for name in list(changes) if name in Limits.model_fields}
    fields: dict[str, Any] = {
        "trial_id": "0001-s1",
        "config": config(),
        "seed": 1,
        "corpus_dir": str(corpus_dir),
        "corpus_sha256": "0" * 64,
        "limits": Limits(**{"wall_s": PATIENT_S, **limits}),
        **changes,
    }
    return TrialSpec(**fields)


TINY = {"n_layer": 1, "n_head": 2, "d_model": 16, "d_ff": 32, "batch_size": 4, "seq_len": 16}


def tiny_spec(corpus: Corpus, recipe: dict[str, Any] | None = None, **changes: Any) -> TrialSpec:
    """Return the spec of five steps of a tiny model on a corpus, with any field changed."""
    fields = {
        "trial_id": "1",
        "config": config(**{**TINY, **(recipe or {})}),
        "seed": 1,
        "corpus_dir": str(corpus.directory),
        "corpus_sha256": corpus.info.sha256,
        "budget": Budget(amount=5),
        "threads": 1,
        **changes,
    }
    return TrialSpec(**fields)


def by_command(spec: TrialSpec) -> TrialSpec:
    """Return the same trial with a script as its command, which makes the attack."""
    told = command(
        argv=(sys.executable, "tests/support/hostile_command.py", "{out}"),
        directory=str(ROOT),
        curve=None,
    )
    return command_spec(
        command=told,
        device=spec.device,
        limits=spec.limits,
        trial_id=spec.trial_id,
    )


def on_gpu(corpus_dir: Path | str = "/nonexistent", **changes: Any) -> TrialSpec:
    """Return the same trial on a GPU, of the backend that leaves torch to the trial.

    For the other backend the fork server imports torch, and a torch without CUDA would be the
    trial's first obstacle.
    """
    return trial_spec(corpus_dir, device="cuda", backend="megatron", **changes)


def trial_ok(spec: TrialSpec, **changes: Any) -> TrialOk:
    """Return a result that a trial of ``spec`` could have, with any field changed."""
    steps = spec.budget.steps(spec.config.tokens_per_step) or 1
    fields: dict[str, Any] = {
        "val_bpb": 4.25,
        "steps": steps,
        "tokens": steps * spec.config.tokens_per_step,
        "step_ms": 50.0,
        "tokens_per_s": 20_000.0,
        "train_s": 3.0,
        "eval_s": 1.0,
        "setup_s": 0.1,
        "peak_mem_gib": 0.5,
        "backend": spec.backend,
        "precision": spec.config.precision,
        **changes,
    }
    return ok(**fields)
