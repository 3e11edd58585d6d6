"""fp8 is TransformerEngine's: of sizes that its products take, and with no other backend."""

import pytest
import torch

from autoresearch.errors import SpecError
from tests.support.configs import config
from trainer.backends.products import check_fp8
from trainer.backends.torch_gpt import TorchBackend

SHAPE = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "seq_len": 16, "batch_size": 4}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_torch_backend_has_none(device: str) -> None:
    with pytest.raises(SpecError):
        TorchBackend().check(config(precision="fp8"), torch.device(device))
    TorchBackend().check(config(precision="bf16"), torch.device(device))


@pytest.mark.parametrize(
    ("changes", "capability", "named"),
    [
        ({}, (8, 0), "8.0"),
        ({"d_ff": 40}, (8, 9), "d_ff"),
        ({"n_head": 4, "n_kv_head": 1}, (8, 9), "n_kv_head"),
    ],
)
def test_what_no_kernel_takes_is_refused(
    changes: dict[str, int], capability: tuple[int, int], named: str
) -> None:
    for fits in ((8, 9), (12, 1)):
        check_fp8(config(**SHAPE, precision="fp8"), fits)
    with pytest.raises(SpecError, match=named):
        check_fp8(config(**{**SHAPE, **changes}, precision="fp8"), capability)
