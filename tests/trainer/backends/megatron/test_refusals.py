"""Configs, devices and versions that the Megatron-Core backend cannot train are refused."""

import contextlib
import subprocess
import sys
from typing import Any

import pytest
import torch

from autoresearch.errors import MachineryError, SpecError
from tests.support.megatron_on_cpu import QUIET, build, small, stirred
from trainer.backends.megatron.backend import MegatronBackend, Trio, _check_fp8, check_trio
from trainer.backends.megatron.weights import load_from_torch

pytestmark = QUIET


@pytest.mark.slow
def test_choosing_and_checking_import_nothing_of_megatron() -> None:
    code = (
        "import sys, torch\n"
        "from tests.support.configs import PAIRWISE, config\n"
        "from trainer.backends.megatron.backend import MegatronBackend\n"
        "from autoresearch.errors import SpecError\n"
        "try: MegatronBackend().check(config(), torch.device('cpu'))\n"
        "except SpecError: pass\n"
        "sys.exit(any(m.split('.')[0] in ('megatron', 'transformer_engine') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ({"norm_place": "output"}, "cuda"),
        ({"norm_place": "sandwich"}, "cuda"),
        ({"mup_base_depth": 1}, "cuda"),
        ({"precision": "bf16"}, "cpu"),
        ({"precision": "fp8"}, "cpu"),
    ],
)
def test_what_it_cannot_train_is_refused(changes: dict[str, Any], device: str) -> None:
    with pytest.raises(SpecError):
        MegatronBackend().check(small(**changes), torch.device(device))


HOPPER = (9, 0)


WITH_ENGINE = Trio("2.13.0", "0.16.1", "2.11.0")


WITHOUT_ENGINE = Trio("2.13.0", "0.16.1", None)


def test_fp8_is_refused_where_it_cannot_run() -> None:
    recipe = small(precision="fp8")
    _check_fp8(recipe, WITH_ENGINE, HOPPER)
    _check_fp8(recipe, WITH_ENGINE, (12, 1))
    with pytest.raises(SpecError):
        _check_fp8(recipe, WITHOUT_ENGINE, HOPPER)
    with pytest.raises(SpecError):
        _check_fp8(recipe, WITH_ENGINE, (8, 0))
    for field, size in {"d_ff": 40, "d_model": 24, "seq_len": 24}.items():
        with pytest.raises(SpecError, match=f"multiples of 16, and {field} is {size}"):
            _check_fp8(small(precision="fp8", **{field: size}), WITH_ENGINE, HOPPER)


@pytest.mark.parametrize(
    ("megatron", "engine", "works"),
    [
        ("0.17.0", "2.9.0", False),
        ("0.17.0rc0", "2.5", False),
        ("0.17.1", "2.9.0.post1+cu13", False),
        (None, "2.11.0", False),
        ("0.15.3", None, False),
        ("dev", None, False),
        ("0.16.1", "2.9.0", True),
        ("0.16.1", None, True),
        ("0.17.0rc0", "2.14.0", True),
        ("0.17.0", "2.10.0", True),
        ("0.18.0", "2.9.0", True),
    ],
)
def test_versions_that_are_missing_old_or_known_to_fail_are_refused(
    megatron: str | None, engine: str | None, works: bool
) -> None:
    with contextlib.nullcontext() if works else pytest.raises(MachineryError):
        check_trio(Trio("2.13.0", megatron, engine))


@pytest.mark.usefixtures("on_cpu")
def test_fp8_is_never_quietly_something_else() -> None:
    with pytest.raises(SpecError):
        build(small(precision="fp8"))


@pytest.mark.usefixtures("on_cpu")
def test_weights_of_another_recipe_are_refused() -> None:
    model = build(small(tie_embeddings=False))
    with pytest.raises(ValueError, match=r"nothing to load into .*output_layer\.weight"):
        load_from_torch(model.gpt, stirred(small(tie_embeddings=True)))
    with pytest.raises(ValueError, match=r"position_embeddings\.weight, \(8, 32\) here"):
        load_from_torch(model.gpt, stirred(small(seq_len=8)))
