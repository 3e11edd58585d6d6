"""A process of its own measures the ceiling, and a missing device yields one sentence."""

from __future__ import annotations

import pytest

from autoresearch.errors import MachineryError
from trainer.machine.ceiling import Ceiling, Product, main, measure_ceiling


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
    ceiling = Ceiling(
        device="cuda",
        dtype="bf16",
        products=(Product(size=4096, tflops=600), Product(size=8192, tflops=800)),
        copy_gb_per_s=4000,
    )
    assert ceiling.utilisation_pct(2e9, 200_000) == pytest.approx(50)
