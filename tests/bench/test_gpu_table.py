"""Test the race against compiled models, and the count of a step's launches and bytes."""

import pytest

from bench import gpu_table
from bench.gpu_bytes import count_step
from bench.reference_gpt import expect_plain


@pytest.mark.parametrize("name", [*gpu_table.SHAPES, *map(str, range(12))])
@pytest.mark.parametrize("small", [False, True])
def test_the_reference_has_every_shape(name: str, small: bool) -> None:
    config, _ = gpu_table.shape_of(name, small=small)
    expect_plain(config)
    assert len(gpu_table.DRAWN) == 12


@pytest.mark.parametrize("how", ["ours", "plain"])
def test_a_process_measures_one_model(how: str) -> None:
    found = gpu_table.measure("modern, 50 M", how, "cpu")
    assert found.keys() == {"first_s", "step_ms", "peak_gib"}
    assert min(found.values()) > 0


def test_the_worst_ratio_of_the_drawn_shapes_is_quoted() -> None:
    peer = {"first_s": 40.0, "step_ms": 100.0, "peak_gib": 20.0}
    found = {
        name: {"ours": {**peer, "step_ms": ms}, "compiled": peer}
        for name, ms in (("modern, 50 M", 300.0), ("3", 90.0), ("7", 125.0))
    }
    last = gpu_table.table_lines(found)[-1]
    assert "1.25" in last and str(gpu_table.DRAWN[7]) in last


def test_a_step_of_the_modern_shape_moves_each_tensor_once() -> None:
    """With qk-norm and rotation in torch's operators it took 412 launches and 169 GB."""
    config, vocab_size = gpu_table.shape_of("modern, 50 M", small=False)
    count = count_step(config, vocab_size)
    assert count.launches["between"] <= 100
    assert count.bytes["between"] < 68e9
    assert count.launches["products"] == 8 * (4 * 3 + 2) + 8 * 3
    assert "roll" not in count.launches
