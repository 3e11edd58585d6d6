"""What the doctor says of Megatron-Core and of compiling."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agent.doctor import compilation, examine, megatron
from agent.settings import Environment
from trainer.backends.versions import Trio


@pytest.mark.parametrize(
    ("trio", "state", "found"),
    [
        (Trio("2.13.0", None, None), "note", "not installed"),
        (Trio("2.13.0", "0.16.1", None), "good", "megatron-core 0.16.1, no transformer-engine"),
        (Trio("2.13.0", "0.16.1", "2.11.0"), "good", "transformer-engine 2.11.0"),
        (Trio("2.13.0", "0.17.0", "2.9.0"), "note", "does not work with transformer-engine 2.9.0"),
        (Trio("2.13.0", "0.15.0", None), "note", "is older than any"),
    ],
)
def test_the_trio_is_judged_by_what_is_installed(trio: Trio, state: str, found: str) -> None:
    check = megatron(trio)
    assert check.state == state
    assert found in check.found


def test_a_missing_compiler_is_named() -> None:
    assert compilation(None).state == "good"
    check = compilation("Triton")
    assert check.state == "note", "trials run without it"
    assert "needs Triton" in check.found


def test_compiling_is_asked_about_where_there_is_a_gpu(tmp_path: Path) -> None:
    names = [check.name for check in examine(Environment(data_dir=tmp_path), tmp_path)]
    assert names.index("device") < names.index("megatron") < names.index("sandbox")
    assert ("compiler" in names) == torch.cuda.is_available()
