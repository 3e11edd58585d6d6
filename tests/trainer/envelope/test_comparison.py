"""Comparing backends: what is measured, what is excluded, and what counts as a defect."""

import math
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import MachineryError, SandboxError, SpecError
from tests.support.configs import config
from tests.support.executors import SteppingExecutor
from tests.support.nvml import FakeNvml, h200
from trainer.corpus import Corpus
from trainer.corpus.prepare import random_corpus
from trainer.envelope.comparison import (
    QUANTITIES,
    BackendComparison,
    CompareSettings,
    Quantity,
    compare_backends,
)
from trainer.machine.ceiling import Ceiling, Product
from trainer.machine.flops import TrainingFlops
from trainer.schema import BackendName, TrialFailed
from trainer.telemetry import Sampler, choose_telemetry

VOCAB = 300
EVEN = math.log(VOCAB)
CEILING = Ceiling(
    device="cpu", dtype="fp32", products=(Product(size=512, tflops=2e-3),), copy_gb_per_s=10
)
TINY = config(n_layer=1, n_head=2, d_model=32, d_ff=64, batch_size=2, seq_len=16, precision="fp32")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return random_corpus(tmp_path / "corpora", vocab_size=VOCAB, longest_seq_len=16)


def compared(
    corpus: Corpus, machine: SteppingExecutor, *backends: BackendName, **changes: Any
) -> BackendComparison:
    sampler = changes.pop("sampler", None)
    settings = CompareSettings(config=TINY, device="cpu", steps=30, warmup=10, **changes)
    folder = corpus.directory.parent
    return compare_backends(settings, backends, corpus, folder, machine, CEILING, sampler=sampler)


def quantity(name: str) -> Quantity:
    return next(one for one in QUANTITIES if one.name == name)


def test_both_train_the_same_and_only_the_backend_differs(corpus: Corpus) -> None:
    result = {"train_loss_first": EVEN, "peak_mem_gib": 4.0, "peak_reserved_gib": 5.0}
    machine = SteppingExecutor(**result)
    found = compared(corpus, machine, "torch", "megatron", seed=7)
    ours, theirs = machine.specs
    assert ours.model_copy(update={"backend": "megatron", "trial_id": "megatron"}) == theirs
    assert (ours.seed, ours.config) == (7, TINY)

    torch, megatron = found.contenders
    assert torch.step_ms == pytest.approx(10), "the warm-up is not counted"
    assert megatron.step_ms == pytest.approx(8)
    assert torch.tokens_per_s == pytest.approx(3200)
    assert quantity("step ms").delta_pct(megatron, torch) == pytest.approx(-20)
    assert quantity("tokens/s").delta_pct(megatron, torch) == pytest.approx(25)
    assert quantity("peak reserved GiB").delta_pct(megatron, torch) == 0
    flops = TrainingFlops.of(TINY, vocab_size=VOCAB, seq_len=16).per_token
    assert torch.utilisation_pct == pytest.approx(100 * flops * 3200 / 2e9)
    assert (found.base.backend, [one.backend for one in found.others]) == ("torch", ["megatron"])
    assert found.defects() == ()


def test_the_table_has_the_devices_use(corpus: Corpus) -> None:
    telemetry = choose_telemetry("cuda", nvml=FakeNvml(h200()))
    with Sampler(telemetry, None) as sampler:
        sampler.mark()
        found = compared(corpus, SteppingExecutor(), "torch", "megatron", sampler=sampler)
    (torch, megatron) = found.contenders
    values = {one.name: one.value(torch) for one in QUANTITIES if one.name.startswith("GPU")}
    assert values == {
        "GPU utilization %, mean": 97,
        "GPU utilization %, peak": 97,
        "GPU power W, mean": pytest.approx(612.345),
        "GPU power W, peak": pytest.approx(612.345),
        "GPU temperature °C, mean": 61,
        "GPU temperature °C, peak": 61,
    }
    assert quantity("GPU power W, mean").delta_pct(megatron, torch) == 0
    assert quantity("GPU temperature °C, mean").delta_pct(megatron, torch) is None


@pytest.mark.parametrize(
    "error", [SpecError("megatron trains on CUDA only"), MachineryError("megatron-core is missing")]
)
def test_a_backend_that_cannot_is_left_out_with_reason(corpus: Corpus, error: Exception) -> None:
    found = compared(corpus, SteppingExecutor({"megatron": error}), "megatron", "torch")
    assert [one.backend for one in found.contenders] == ["torch"]
    assert found.others == ()
    (left,) = found.left_out
    assert (left.backend, left.why) == ("megatron", str(error))


def test_where_none_can_it_is_an_error_with_every_reason(corpus: Corpus) -> None:
    machine = SteppingExecutor({"torch": SpecError("no fp8"), "megatron": SpecError("no CUDA")})
    with pytest.raises(SpecError):
        compared(corpus, machine, "torch", "megatron")


def test_a_sandbox_that_cannot_confine_ends_it(corpus: Corpus) -> None:
    machine = SteppingExecutor({"torch": SandboxError("no Landlock")})
    with pytest.raises(SandboxError):
        compared(corpus, machine, "torch", "megatron")


def test_a_failed_trial_has_no_numbers_and_the_other_is_the_base(corpus: Corpus) -> None:
    failure = TrialFailed(status="oom", message="out of memory", peak_mem_gib=9)
    found = compared(corpus, SteppingExecutor({"torch": failure}), "torch", "megatron")
    assert found.base.backend == "megatron"
    (torch,) = found.others
    assert (torch.status, torch.message) == ("oom", "out of memory")
    assert all(one.value(torch) is None for one in QUANTITIES)
    assert all(one.delta_pct(torch, found.base) is None for one in QUANTITIES)


@pytest.mark.parametrize(("loss", "defects"), [(EVEN * 1.05, 0), (585.5, 2), (EVEN / 2, 2)])
def test_a_first_loss_far_from_even_is_a_defect(corpus: Corpus, loss: float, defects: int) -> None:
    machine = SteppingExecutor(train_loss_first=loss)
    said = compared(corpus, machine, "torch", "megatron").defects()
    assert len(said) == defects
    assert all(f"ln({VOCAB}) = 5.704" in sentence for sentence in said)
