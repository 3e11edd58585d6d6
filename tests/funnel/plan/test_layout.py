from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import HandoffError
from funnel.cost.gpus import GPUS, find_gpu, hourly_usd
from funnel.cost.rates import Rates
from funnel.plan.layout import (
    Cluster,
    Layout,
    MemoryUse,
    layer_activation_bytes,
    layouts,
    memory_use,
)
from funnel.plan.utilisation import fastest
from funnel.targets.architecture import TargetArchitecture, load_target, shipped_targets
from tests.support.plans import cluster


def layout(**changes: Any) -> Layout:
    values = {"tensor": 1, "pipeline": 1, "data": 8, "micro_batch": 1, "global_batch": 8}
    return Layout(**values | changes)


def gpt3_like(**changes: Any) -> TargetArchitecture:
    values: dict[str, Any] = {
        "name": "gpt", "params": 7_264_000_000, "params_counted": "without_embeddings",
        "d_model": 4096, "n_layer": 36, "n_head": 32, "n_kv_head": 32, "head_dim": 128,
        "ffn_ratio": 4.0, "activation": "gelu", "norm": "layernorm", "positions": "learned",
        "seq_len": 2048, "vocab_size": 51200, "tie_embeddings": True,
    }  # fmt: skip
    return TargetArchitecture(**values | changes)


def chosen(target: TargetArchitecture, of: Cluster, batch: int = 128) -> MemoryUse:
    return fastest(layouts(target, of, batch, fp8=False), target, of, fp8=False)


def test_activations_are_korthikantis_without_their_dropout_masks() -> None:
    # Korthikanti et al. 2022: 34 h per token and layer; the masks of two dropouts are h each.
    assert layer_activation_bytes(gpt3_like()) == 32 * 4096


def test_bytes_a_parameter_are_megatrons() -> None:
    """``theoretical_memory_usage.py``: 18 bytes plain, ``6 + 12 / DP`` with the distributed
    optimizer."""
    target, gpu = load_target("llama-7b"), GPUS["h100"]
    params = target.total_params / 1e9
    plain = memory_use(target, layout(distributed_optimizer=False), gpu, fp8=False)
    spread = memory_use(target, layout(), gpu, fp8=False)

    def state_gb(use: MemoryUse) -> float:
        return use.weights_gb + use.gradients_gb + use.optimizer_gb

    assert state_gb(plain) == pytest.approx(18 * params, rel=1e-3)
    assert state_gb(spread) == pytest.approx((6 + 12 / 8) * params, rel=1e-3)
    in_fp8 = memory_use(target, layout(), gpu, fp8=True)
    matrices = target.parameter_count.blocks / 1e9
    assert in_fp8.weights_gb - spread.weights_gb == pytest.approx(2 * matrices, rel=1e-3)


def test_logits_count_on_the_last_stage_and_activations_on_the_first() -> None:
    target, gpu = load_target("llama-7b"), GPUS["h100"]
    one = memory_use(target, layout(), gpu, fp8=False)
    assert one.logits_gb == pytest.approx(8192 * 128_256 * 8 / 1e9)
    assert one.activations_gb == pytest.approx(
        8192 * 32 * layer_activation_bytes(target) / 1e9, rel=1e-9
    )
    # The first of four stages has a quarter of the layers, four micro-batches and no logits.
    small = target.model_copy(update={"vocab_size": 1024})
    first = memory_use(small, layout(pipeline=4, data=2, global_batch=16), gpu, fp8=False)
    assert first.logits_gb == 0
    assert first.activations_gb == pytest.approx(one.activations_gb)
    starved = memory_use(small, layout(pipeline=4, data=2, global_batch=4), gpu, fp8=False)
    assert starved.activations_gb == pytest.approx(one.activations_gb / 2)
    full = memory_use(target, layout(recompute="full"), gpu, fp8=False)
    assert full.activations_gb == pytest.approx(
        8192 * (2 * 4096 * 32 + layer_activation_bytes(target)) / 1e9
    )


@pytest.mark.parametrize("name", shipped_targets())
@given(
    nodes=st.sampled_from([1, 2, 3, 4, 16]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    batch=st.integers(1, 4096),
    fp8=st.booleans(),
)
def test_layouts_divide_evenly(name: str, nodes: int, gpus: int, batch: int, fp8: bool) -> None:
    target = load_target(name)
    for use in layouts(target, cluster(nodes, gpus), batch, fp8=fp8):
        own = use.layout
        assert own.tensor * own.pipeline * own.data == nodes * gpus
        assert own.tensor <= min(8, gpus)
        assert gpus % own.tensor == 0
        assert target.n_head % own.tensor == target.n_kv_head % own.tensor == 0
        assert target.n_layer % own.pipeline == 0
        assert own.global_batch % (own.data * own.micro_batch) == 0
        assert own.accumulation >= 1
        assert abs(own.global_batch - batch) <= max(own.data / 2, own.data - batch)


def test_the_least_model_parallelism_that_fits_is_taken() -> None:
    target = load_target("llama-7b")
    taken = chosen(target, cluster()).layout
    assert (taken.tensor, taken.pipeline, taken.recompute) == (2, 1, "selective")
    for use in layouts(target, cluster(), 128, fp8=False):
        less = use.layout.tensor * use.layout.pipeline < 2
        assert not (less and use.layout.recompute == "selective" and use.fits)
    small = chosen(load_target("llama-1b"), cluster()).layout
    assert (small.tensor, small.pipeline, small.data) == (1, 1, 8)
    # Layers are recomputed only where nothing fits without.
    long = chosen(target.model_copy(update={"seq_len": 131_072}), cluster(), 8)
    assert (long.layout.recompute, long.fits) == ("full", True)


def test_a_pipeline_with_fewer_micro_batches_than_stages_is_not_taken() -> None:
    target, gpus = load_target("llama-70b"), cluster(8)
    starved = [use for use in layouts(target, gpus, 4, fp8=False) if use.layout.is_starved]
    assert any(use.fits for use in starved)
    for use in starved:
        assert not use.is_usable
        assert use.layout.bubble >= 0.5
    assert chosen(target, gpus, 4).layout.pipeline == 1
    # Two stages divide sixteen sequences into four micro-batches. The bubble is Narayanan's.
    taken = chosen(target, gpus, 16).layout
    assert (taken.pipeline, taken.accumulation, taken.bubble) == (2, 4, 1 / 5)


def test_a_micro_batch_is_as_large_as_leaves_the_pipeline_enough_of_them() -> None:
    target, gpus = load_target("llama-1b"), cluster(4, 1)
    micro_batches = {
        batch: [use.layout for use in layouts(target, gpus, batch, fp8=False)][-1].micro_batch
        for batch in (4, 8, 16)
    }
    assert micro_batches == {4: 1, 8: 2, 16: 4}


@pytest.mark.parametrize(
    ("few", "batch", "option", "enough", "larger"),
    [
        (cluster(), 128, "--nodes", cluster(8), 128),
        # Only pipelines with fewer micro-batches than stages fit one sequence.
        (cluster(16, 1, "b200"), 1, "--global-batch", cluster(16, 1, "b200"), 16),
    ],
)
def test_what_does_not_fit_says_what_would_help(
    few: Cluster, batch: int, option: str, enough: Cluster, larger: int
) -> None:
    target = load_target("llama-70b")
    with pytest.raises(HandoffError, match=option):
        chosen(target, few, batch)
    assert chosen(target, enough, larger).is_usable


def test_gpus_by_name_and_what_they_cost() -> None:
    assert find_gpu("H100").memory_gb == 80
    with pytest.raises(HandoffError):
        find_gpu("h10")
    rates = Rates(h100_hourly_usd=2.0, h200_hourly_usd=3.0, b200_hourly_usd=4.5)
    assert [hourly_usd(GPUS[name], rates) for name in ("h100", "h200", "b200")] == [2.0, 3.0, 4.5]


def test_what_fits_unsharded_is_not_sharded() -> None:
    """At 18 bytes per parameter llama-1b needs 22 GB and llama-7b 145 GB. With a tensor parallelism
    of two, llama-7b needs 72 GB in addition to its activations and logits."""
    assert chosen(load_target("llama-7b"), cluster()).layout.is_sharded
    for name, gpu in (("llama-1b", "h100"), ("llama-7b", "h200")):
        target = load_target(name)
        uses = layouts(target, cluster(gpu=gpu), 128, fp8=False)
        assert not all(use.layout.is_sharded for use in uses)
        for use in uses:
            if use.layout.is_sharded:
                alone = {"distributed_optimizer": False, "micro_batch": 1}
                plain = use.layout.model_copy(update=alone)
                assert not memory_use(target, plain, GPUS[gpu], fp8=False).is_usable
