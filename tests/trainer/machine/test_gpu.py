"""Test what is known of a device: its name, memory, peak speed and power ceiling."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from autoresearch.errors import MachineryError, SpecError
from autoresearch.values import Frozen
from bench.reference_gpt import ReferenceGPT
from tests.support.configs import config
from tests.support.stub_cuda import STARTED, build_stub
from trainer.machine.ceiling import Ceiling, Product, main, measure_ceiling
from trainer.machine.flops import TrainingFlops, product_weights
from trainer.machine.gpu import NoAnswer, ask
from trainer.training.readiness import check_elsewhere, check_trainable


class Nothing(Frozen):
    """Answer that no process gives."""

    never: int


@pytest.mark.slow
def test_a_verdict_and_whose_fault_it_is_cross_the_process() -> None:
    check_elsewhere(config(), "torch", "cpu")
    with pytest.raises(SpecError):
        check_elsewhere(config(precision="fp8"), "torch", "cpu")
    with pytest.raises(MachineryError):
        check_elsewhere(config(), "torch", "abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_about_a_gpu_another_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calling process's own CUDA state therefore does not matter."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked here"))
    with pytest.raises(MachineryError):
        check_trainable(config(), "torch", "cuda")


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_failed_driver_says_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all of these cases torch only says that there is no device."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path)))
    monkeypatch.setenv("CUDA_STUB_ENDS", "803")
    with pytest.raises(MachineryError, match="cuInit returned 803"):
        check_trainable(config(), "torch", "cuda")
    monkeypatch.setenv("CUDA_STUB_ENDS", "0")
    with pytest.raises(MachineryError, match=STARTED):
        check_trainable(config(), "torch", "cuda")


def test_a_process_that_says_nothing_is_quoted_or_given_up() -> None:
    with pytest.raises(NoAnswer):
        ask(Nothing, "trainer.nonesuch", patience_s=60)
    with pytest.raises(NoAnswer):
        ask(Nothing, "trainer.machine.gpu", "memory", "cuda", patience_s=0.001)


@pytest.mark.slow
def test_the_ceiling_of_this_processor() -> None:
    found = measure_ceiling("cpu", "fp32", sizes=[32, 64])
    assert [product.size for product in found.products] == [32, 64]
    assert found.tflops == max(product.tflops for product in found.products) > 0
    assert found.copy_gb_per_s > 0


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda:77", "abacus"])
def test_a_device_that_is_not_there_is_one_sentence(device: str) -> None:
    with pytest.raises(MachineryError):
        measure_ceiling(device, sizes=[32])


def test_the_process_says_why_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cuda:77", "bf16", "32"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err


def test_utilisation_is_of_the_fastest_product() -> None:
    products = tuple(Product(size=4096, tflops=tflops) for tflops in (800, 600))
    ceiling = Ceiling(device="cuda", dtype="bf16", products=products, copy_gb_per_s=4000)
    assert ceiling.utilisation_pct(2e9, 200_000) == pytest.approx(50)


D, F = 128, 512


@pytest.mark.parametrize(
    ("changes", "weights"),
    [
        *(
            (changes, 4 * (4 * D * D + 2 * D * F) + 10 * D)
            for changes in (
                *({"tie_embeddings": True}, {"tie_embeddings": False}, {"activation": "relu2"}),
                {"qk_norm": True, "norm_place": "sandwich"},
            )
        ),
        *(
            ({"activation": name}, 4 * (4 * D * D + 3 * D * F) + 10 * D)
            for name in ("swiglu", "geglu")
        ),
        # Queries and output 2 D², keys and values 2 × D × D / 4, three matrices of D × F, the head.
        (
            {"n_layer": 1, "n_head": 4, "n_kv_head": 1, "d_model": 64, "d_ff": 128}
            | {"activation": "swiglu"},
            2 * 64**2 + 2 * 64 * 16 + 3 * 64 * 128 + 10 * 64,
        ),
        # Two elevenths of D² are no exact float.
        (
            {"n_layer": 1, "n_head": 11, "n_kv_head": 1, "d_model": 880, "d_ff": 128},
            2 * 880**2 + 2 * 880 * 80 + 2 * 880 * 128 + 10 * 880,
        ),
    ],
    ids=str,
)
def test_products_read_the_weights_by_hand(changes: dict[str, Any], weights: int) -> None:
    assert product_weights(config(**changes), 10) == weights


def test_torch_counts_the_same() -> None:
    """Torch's counter sees every product, forward and backward. Its attention counts whole
    squares."""
    shape = config(n_layer=2, n_head=2, d_model=32, d_ff=64, seq_len=16, precision="fp32")
    vocab, batch = 50, 3
    model = ReferenceGPT(shape, vocab)
    tokens_BT = torch.zeros(batch, 16, dtype=torch.int64)
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(tokens_BT, tokens_BT).backward()
    flops = TrainingFlops.of(shape, vocab_size=vocab, seq_len=16)
    assert counter.get_total_flops() == pytest.approx(flops.per_token * batch * 16, rel=0.02)
