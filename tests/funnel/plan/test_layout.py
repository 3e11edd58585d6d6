from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.settings.environment import Rates
from autoresearch.errors import HandoffError
from funnel.cost.gpus import GPUS, find_gpu, hourly_usd
from funnel.plan.layout import (
    Cluster,
    Layout,
    MemoryUse,
    layer_activation_bytes,
    layouts,
    memory_use,
    suggest,
)
from funnel.target.architecture import TargetArchitecture, load_target, shipped_targets


def cluster(nodes: int = 1, gpus: int = 8, gpu: str = "h100") -> Cluster:
    return Cluster(nodes=nodes, gpus=gpus, gpu=GPUS[gpu])


def layout(**changes: Any) -> Layout:
    values: dict[str, Any] = {
        "tensor": 1,
        "pipeline": 1,
        "data": 8,
        "micro_batch": 1,
        "global_batch": 8,
    }
    return Layout(**values | changes)


def gpt3_like(**changes: Any) -> TargetArchitecture:
    values: dict[str, Any] = {
        "name": "gpt",
        "params": 7_264_000_000,
        "params_counted": "without_embeddings",
        "d_model": 4096,
        "n_layer": 36,
        "n_head": 32,
        "n_kv_head": 32,
        "head_dim": 128,
        "ffn_ratio": 4.0,
        "activation": "gelu",
        "norm": "layernorm",
        "positions": "learned",
        "seq_len": 2048,
        "vocab_size": 51200,
        "tie_embeddings": True,
    }
    return TargetArchitecture(**values | changes)


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
def test_every_layout_divides_what_it_splits(
    name: str, nodes: int, gpus: int, batch: int, fp8: bool
) -> None:
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
    uses = layouts(target, cluster(), 128, fp8=False)
    chosen = suggest(uses, target, cluster())
    assert str(chosen.layout) == "TP 2 × PP 1 × DP 4"
    assert chosen.layout.recompute == "selective"
    for use in uses:
        split, own = use.layout, chosen.layout
        less = split.tensor * split.pipeline < own.tensor * own.pipeline
        if less and use.layout.recompute == "selective":
            assert not use.fits
    assert (
        str(
            suggest(
                layouts(load_target("llama-1b"), cluster(), 128, fp8=False),
                load_target("llama-1b"),
                cluster(),
            ).layout
        )
        == "TP 1 × PP 1 × DP 8"
    )


def test_a_pipeline_with_fewer_micro_batches_than_stages_is_not_taken() -> None:
    target, gpus = load_target("llama-70b"), cluster(8)
    uses = layouts(target, gpus, 4, fp8=False)
    starved = [use for use in uses if use.layout.is_starved]
    assert any(use.fits for use in starved)
    for use in starved:
        assert not use.is_usable
        assert use.layout.bubble >= 0.5
    assert suggest(uses, target, gpus).layout.pipeline == 1
    # Two stages divide sixteen sequences into four micro-batches.
    chosen = suggest(layouts(target, gpus, 16, fp8=False), target, gpus).layout
    assert (chosen.pipeline, chosen.accumulation) == (2, 4)


def test_a_micro_batch_is_as_large_as_leaves_the_pipeline_enough_of_them() -> None:
    target, gpus = load_target("llama-1b"), cluster(4, 1)
    micro_batches = {
        batch: [use.layout for use in layouts(target, gpus, batch, fp8=False)][-1].micro_batch
        for batch in (4, 8, 16)
    }
    assert micro_batches == {4: 1, 8: 2, 16: 4}


def test_where_only_starved_pipelines_fit_the_batch_to_ask_for_is_named() -> None:
    target, gpus = load_target("llama-70b"), cluster(16, 1, "b200")
    with pytest.raises(HandoffError):
        suggest(layouts(target, gpus, 1, fp8=False), target, gpus)
    assert suggest(layouts(target, gpus, 16, fp8=False), target, gpus).layout.bubble < 0.5


def test_layers_are_recomputed_only_where_nothing_fits_without() -> None:
    target = load_target("llama-7b")
    long = target.model_copy(update={"seq_len": 131_072})
    chosen = suggest(layouts(long, cluster(), 8, fp8=False), long, cluster())
    assert chosen.layout.recompute == "full"
    assert chosen.fits


def test_what_does_not_fit_says_what_would_help() -> None:
    target = load_target("llama-70b")
    with pytest.raises(HandoffError, match="--nodes") as e:
        suggest(layouts(target, cluster(), 128, fp8=False), target, cluster())
    assert "\n" not in str(e.value)
    assert suggest(layouts(target, cluster(8), 128, fp8=False), target, cluster(8)).fits


def test_gpus_by_name_and_what_they_cost() -> None:
    assert find_gpu("H100").memory_gb == 80
    with pytest.raises(HandoffError):
        find_gpu("h10")
    with pytest.raises(HandoffError) as error:
        find_gpu("tpu")
    assert str(error.value).count("b200") == 1, "the choices are listed, and once"
    rates = Rates(h100_hourly_usd=2.0, h200_hourly_usd=3.0)
    assert hourly_usd(GPUS["h100"], rates) == 2.0
    assert hourly_usd(GPUS["h200"], rates) == 3.0
    assert hourly_usd(GPUS["b200"], Rates(b200_hourly_usd=4.5)) == 4.5


def test_what_fits_unsharded_is_not_sharded() -> None:
    """At 18 bytes per parameter llama-1b needs 22 GB and llama-7b 145 GB. With a tensor parallelism
    of two, llama-7b needs 72 GB in addition to its activations and logits."""
    small = layouts(load_target("llama-1b"), cluster(), 128, fp8=False)
    assert not small[0].layout.distributed_optimizer
    assert small[0].optimizer_gb == pytest.approx(12 * small[0].weights_gb / 2)
    large = suggest(
        layouts(load_target("llama-7b"), cluster(), 128, fp8=False),
        load_target("llama-7b"),
        cluster(),
    )
    assert large.layout.is_sharded
    roomy = layouts(load_target("llama-7b"), cluster(gpu="h200"), 128, fp8=False)
    for use in (*small, *roomy):
        if use.layout.is_sharded:
            plain = use.layout.model_copy(update={"distributed_optimizer": False, "micro_batch": 1})
            name = "h100" if use in small else "h200"
            target = load_target("llama-1b" if use in small else "llama-7b")
            assert not memory_use(target, plain, GPUS[name], fp8=False).is_usable
