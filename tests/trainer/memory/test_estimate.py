"""The analytic estimate agrees with real models and published peaks."""

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import torch

from autoresearch.errors import MachineryError, SpecError
from funnel.targets.shape import ParameterCount
from tests.support.configs import config
from tests.support.corpora import prose, write_corpus
from tests.support.envelopes import GB10_VOCAB, gb10_base, gb10_points
from tests.support.recipes import PARTS
from tests.support.stub_cuda import set_available
from tests.support.trials import tiny_spec
from trainer.backends.torch_gpt import TorchGPT
from trainer.envelope.points import EnvelopePoint
from trainer.executors.local import LocalExecutor
from trainer.memory.estimate import AnalyticMemory, device_limit, parameter_count
from trainer.memory.parts import (
    WORKSPACE_BYTES,
    MemoryParts,
    megatron,
    written_out,
)
from trainer.schema import BackendName, Budget, Config, TrialOk

WIDE: dict[str, object] = {"n_head": 16, "d_model": 1024, "d_ff": 4096, "seq_len": 1024}
COUNTED: tuple[tuple[dict[str, object], int], ...] = (
    ({}, 25_856_512),
    ({"precision": "fp32", "batch_size": 64}, 233_343_488),
    ({**WIDE, "n_layer": 24, "batch_size": 16}, 13_682_473_984),
    (
        {**WIDE, "n_layer": 6, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"},
        4_235_729_408,
    ),
    ({**WIDE, "n_layer": 6, "n_kv_head": 4, "tie_embeddings": False}, 3_597_122_048),
    ({**WIDE, "n_layer": 2, "d_model": 2048, "d_ff": 8192, "batch_size": 2}, 4_522_361_856),
    ({**WIDE, "n_layer": 4, "precision": "fp32", "batch_size": 4}, 2_780_981_248),
    ({**WIDE, "n_layer": 6, "activation": "geglu", "qk_norm": True, "n_kv_head": 4}, 3_889_200_128),
    (
        {**WIDE, "n_layer": 6, "qk_norm": True, "positions": "rotary", "norm": "rmsnorm"},
        3_451_971_072,
    ),
    (
        {**WIDE, "n_layer": 24, "batch_size": 16, "norm_place": "output", "activation": "relu2"},
        15_293_090_816,
    ),
    (
        {
            **WIDE,
            "n_layer": 6,
            "norm_place": "sandwich",
            "mup_base_depth": 2,
            "mup_base_width": 256,
        },
        3_464_159_232,
    ),
    (
        {**WIDE, "n_layer": 6, "norm_place": "output", "precision": "fp32", "batch_size": 4},
        3_620_423_680,
    ),
)
"""Configs and the peak bytes of a step of the torch backend on a GPU, counted operator by operator
at 96a56676. The peaks are at the loss, the last block, the first block or the embedding."""
GB10_WITHOUT_KERNELS = 19_420_113_920
"""The same for the GB10's shape in bf16, on torch's operators instead of our kernels."""


def model_of(vocab_size: int = 257, device: str = "cuda", backend: str = "torch") -> AnalyticMemory:
    return AnalyticMemory(vocab_size=vocab_size, backend=backend, device=device, limit_gib=1.0)


@pytest.mark.parametrize("changes", ({}, {"n_kv_head": 1}, *PARTS), ids=str)
def test_gains_and_gates_are_counted(changes: dict[str, Any]) -> None:
    shape = config(n_layer=2, d_model=32, **changes)
    model = TorchGPT(shape, 300, torch.device("meta"))
    count = sum(p.numel() for p in model.parameters())
    assert parameter_count(shape, 300) == count == ParameterCount.of(shape, 300).total


PUBLISHED: dict[str, Any] = {"parameter_bytes": 6}
"""The published run: weights and moments in bf16, and Megatron-Core's own cross entropy."""


def at_loss_gib(parts: MemoryParts, config: Config) -> float:
    return (parts.fixed_bytes + parts.per_token_bytes * config.tokens_per_step) / 2**30


@pytest.mark.parametrize("point", gb10_points(), ids=lambda point: str(point.cell))
def test_the_formula_is_near_each_published_peak(point: EnvelopePoint) -> None:
    """Within 0.05 GiB; the two smallest steps peak elsewhere, 0.24 GiB higher."""
    config = gb10_base().model_copy(update=point.cell._asdict())
    predicted_gib = at_loss_gib(megatron(config, GB10_VOCAB, dropout=True, **PUBLISHED), config)
    is_smallest = config.tokens_per_step == 2048
    assert point.peak_mem_gib == pytest.approx(predicted_gib, abs=0.25 if is_smallest else 0.05)


@pytest.mark.parametrize(
    ("precision", "vocab_size", "measured_gib"),
    [("bf16", GB10_VOCAB, 27.34), ("fp8", GB10_VOCAB, 26.03), ("bf16", 36_395, 24.6)],
)
def test_the_formula_is_near_each_peak_of_an_h200(
    precision: str, vocab_size: int, measured_gib: float
) -> None:
    """They were measured before the fusions, with torch's cross entropy over fp32 logits: 12 bytes
    a logit."""
    config = gb10_base().model_copy(update={"precision": precision})
    predicted_gib = at_loss_gib(megatron(config, vocab_size, loss_bytes=12), config)
    assert measured_gib == pytest.approx(predicted_gib, abs=0.06)


@pytest.mark.parametrize(("changes", "counted_bytes"), COUNTED, ids=str)
def test_the_formula_is_what_was_counted(changes: dict[str, object], counted_bytes: int) -> None:
    shape = config(**changes)
    vocab_size = 257 if shape.d_model < 256 else GB10_VOCAB
    predicted_bytes = model_of(vocab_size).predict_gib(shape) * 2**30
    assert predicted_bytes == pytest.approx(counted_bytes, rel=0.02)


def test_a_large_step_is_bounded_by_its_activations_and_a_small_one_by_the_update() -> None:
    estimate = model_of(device="cpu")
    small = config(batch_size=1, seq_len=1)
    parts = estimate.parts(small)
    assert estimate.predict_gib(small) * 2**30 == parts.update_bytes
    large = config(batch_size=64, seq_len=1024)
    parts = estimate.parts(large)
    assert estimate.predict_gib(large) * 2**30 == pytest.approx(
        parts.fixed_bytes + parts.per_token_bytes * 64 * 1024
    )


def test_fp8_keeps_less_than_bf16_for_each_token_in_megatron() -> None:
    estimate = model_of(backend="megatron")
    bf16, fp8 = (estimate.parts(config(precision=p)) for p in ("bf16", "fp8"))
    assert bf16.per_token_bytes - fp8.per_token_bytes == 4 * (128 + 512), "of 4 blocks: D + F"


def test_a_block_is_what_korthikanti_counts_without_dropout() -> None:
    shape = config(n_layer=1, d_model=128, d_ff=512)
    assert written_out(shape, 257, on_cpu=False).per_token_bytes == 32 * 128 + 12 * 257


@pytest.mark.parametrize(("precision", "each"), [("bf16", 18), ("fp32", 16)])
def test_megatron_holds_main_weights_below_fp32(precision: str, each: int) -> None:
    shape = config(precision=precision)
    parts = model_of(backend="megatron").parts(shape)
    assert parts.update_bytes == each * parameter_count(shape, 257) + WORKSPACE_BYTES


def test_blocks_without_our_kernels_hold_what_torchs_operators_do() -> None:
    shape = gb10_base().model_copy(update={"precision": "bf16"})
    plain = AnalyticMemory(
        vocab_size=GB10_VOCAB, backend="torch", device="cuda", limit_gib=1.0, kernels=False
    )
    assert plain.predict_gib(shape) * 2**30 == pytest.approx(GB10_WITHOUT_KERNELS, rel=0.05)
    assert plain.predict_gib(shape) > 1.3 * model_of(GB10_VOCAB).predict_gib(shape)


@pytest.mark.slow
def test_a_function_of_the_scores_needs_what_a_trial_with_one_takes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", train=[prose(9000, seed=n) for n in range(8)])
    wide = {"n_head": 8, "d_model": 32, "n_layer": 2, "seq_len": 1024, "precision": "fp32"}
    capped = {"code.attention_scores": "return 20.0 * torch.tanh(scores / 20.0)"}
    spec = tiny_spec(corpus, {**wide, "batch_size": 2, **capped}, budget=Budget(amount=1))
    with LocalExecutor() as executor:
        result = executor.submit(spec, tmp_path / "trial").result(240).result
    assert isinstance(result, TrialOk)
    predicted = model_of(device="cpu").predict_gib(spec.gpt)
    assert result.peak_mem_gib == pytest.approx(predicted, rel=0.15)
    without = model_of(device="cpu").predict_gib(config(**wide, batch_size=2))
    assert result.peak_mem_gib > 2 * without


@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_grouped_keys_and_values_are_fewer_activations(n_kv_head: int) -> None:
    whole, grouped = config(), config(n_kv_head=n_kv_head)
    parts = [written_out(one, 257, on_cpu=False).per_token_bytes for one in (whole, grouped)]
    assert parts[0] - parts[1] == whole.n_layer * 4 * 128 * (1 - n_kv_head / 4)


def test_on_a_cpu_the_torch_backend_holds_the_logits_of_one_chunk() -> None:
    step = gb10_base().model_copy(update={"precision": "bf16", "batch_size": 16, "seq_len": 1024})
    longer = step.model_copy(update={"batch_size": 32})
    parts, parts_longer = (written_out(one, GB10_VOCAB, on_cpu=True) for one in (step, longer))
    assert parts.per_token_bytes == parts_longer.per_token_bytes == 24 * 32 * 1024 + 2 * 1024
    assert parts.fixed_bytes == parts_longer.fixed_bytes, "both of 2,048 tokens a chunk"


def test_a_backend_or_device_that_does_not_exist_is_named() -> None:
    with pytest.raises(SpecError):
        model_of(backend="jax")
    if not torch.cuda.is_available():
        with pytest.raises(SpecError):
            device_limit("cuda:0")


def test_the_limit_of_a_cpu_is_its_share_of_the_machine_or_the_trials_smaller_one() -> None:
    machine = device_limit("cpu")
    assert 0 < machine.gib <= psutil.virtual_memory().total / 2**30
    each = device_limit("cpu", places=4)
    assert (each.gib, each.source) == (machine.gib / 4, machine.source)
    trial = device_limit("cpu", each.gib / 2, places=4)
    assert (trial.gib, trial.source) == (each.gib / 2, "trial"), "the trial's own is each trial's"
    assert device_limit("cpu", 1e6) == machine


PRETENDED_TORCH = """
class cuda:
    def get_device_properties(device):
        assert device == "cuda:3", device
        return Properties
    def mem_get_info(device):
        assert not {unified}, "on a GB10 this can fail, and leaves out what the page cache holds"
        return 3 << 30, {gib} << 30
class Properties:
    total_memory = {gib} << 30
    is_integrated = {unified}
"""


@pytest.mark.parametrize(
    ("gib", "unified", "available_gib", "limit"),
    [
        pytest.param(4096, 0, 9, (3, "device"), id="of its own: what is free there"),
        pytest.param(4096, 1, 9, (1.5, "available"), id="shared: what is available, less"),
        pytest.param(1, 1, 9, (1, "device"), id="shared: no more than it can address"),
    ],
)
def test_a_gpus_memory_is_asked_in_another_process(
    gib: int,
    unified: int,
    available_gib: float,
    limit: tuple[float, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the other process has a torch that finds a GPU."""
    (tmp_path / "torch.py").write_text(PRETENDED_TORCH.format(gib=gib, unified=unified))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    set_available(tmp_path, available_gib)
    found = device_limit("cuda:3", reserve_gib=7.5, meminfo=tmp_path / "proc" / "meminfo")
    assert (found.gib, found.source) == limit
    assert found.is_shared == bool(unified)


def test_a_full_machine_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(PRETENDED_TORCH.format(gib=120, unified=1))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    set_available(tmp_path, 8.5)
    with pytest.raises(MachineryError, match="RESERVE_GIB"):
        device_limit("cuda:3", meminfo=tmp_path / "proc" / "meminfo")


def test_asking_for_a_gpus_memory_loads_no_torch_here() -> None:
    code = (
        "import contextlib, sys; from trainer.memory.estimate import device_limit\n"
        "with contextlib.suppress(Exception): device_limit('cuda:0')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpus_limit_is_its_own_memory_or_the_machines() -> None:
    assert device_limit("cuda").source in {"device", "available", "container"}
    assert device_limit("cuda", 0.1).gib > 1, "a limit on resident memory says nothing about a GPU"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("backend", get_args(BackendName))
def test_every_backend_that_a_spec_may_name_is_estimated(backend: str, device: str) -> None:
    shape = config(n_layer=2, d_model=64, precision="fp32")
    estimate = model_of(backend=backend, device=device).predict_gib(shape)
    assert 12 * parameter_count(shape, 257) < estimate * 2**30
