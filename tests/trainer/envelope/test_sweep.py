"""A sweep measures every point, survives failures, and stops where memory would end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import MachineryError, SpecError
from tests.support.envelopes import GB10_VOCAB, failed, gb10_base, settings
from tests.support.executors import SteppingExecutor
from tests.support.nvml import FakeNvml, h200, not_supported
from tests.support.texts import corpus_texts
from trainer.corpus import open_corpus
from trainer.corpus.prepare import random_corpus, vocabulary_of
from trainer.corpus.store import is_intact
from trainer.envelope.points import Cell, EnvelopePoint, EnvelopeSettings
from trainer.envelope.sweep import POINTS_FILE, cells, sweep, why_beyond
from trainer.executors.local import LocalExecutor
from trainer.memory.estimate import AnalyticMemory
from trainer.schema import BackendName, CurvePoint, TrialFailed
from trainer.telemetry import MeanAndPeak, Sampler, choose_telemetry


class Watched:
    """Observer that records the cells and points reported to it."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.points: list[EnvelopePoint] = []

    def __call__(self, seen: Cell | EnvelopePoint) -> None:
        if isinstance(seen, Cell):
            self.cells.append(seen)
        else:
            self.points.append(seen)


@pytest.mark.parametrize(("steps", "warmup", "step_ms"), [(30, 5, 10.0), (4, 0, 1030 / 4)])
def test_no_warm_up_is_counted(steps: int, warmup: int, step_ms: float, tmp_path: Path) -> None:
    machine = SteppingExecutor()
    asked = settings(steps=steps, warmup=warmup)
    (only,) = sweep(asked, cells([2], [16], ["fp32"]), tmp_path, machine, Watched())
    assert only.step_ms == pytest.approx(step_ms)
    assert only.tokens_per_s == pytest.approx(32e3 / step_ms)
    assert machine.specs[0].budget.amount == steps


def test_a_failure_is_recorded_and_the_sweep_goes_on(tmp_path: Path) -> None:
    oom = TrialFailed(status="oom", message="no memory left", peak_mem_gib=3.0)
    machine = SteppingExecutor({4: oom, 8: SpecError("no such precision here")})
    watched = Watched()
    grid = cells([2, 4, 8, 16], [16], ["fp32"])
    points = sweep(settings(), grid, tmp_path, machine, watched)
    assert [p.status for p in points] == ["ok", "oom", "refused", "ok"]
    assert (points[1].message, points[1].peak_mem_gib) == ("no memory left", 3.0)
    assert points[2].message == "no such precision here"
    assert watched.cells == list(grid)
    assert watched.points == list(points)


def test_a_point_has_the_devices_use_of_its_counted_steps(tmp_path: Path) -> None:
    telemetry = choose_telemetry("cuda", nvml=FakeNvml(h200(temperature=not_supported())))
    oom = TrialFailed(status="oom", message="no memory left", peak_mem_gib=3.0)
    grid = cells([2, 4], [16], ["fp32"])
    with Sampler(telemetry, None) as sampler:
        sampler.mark()
        measured, failed = sweep(
            settings(), grid, tmp_path, SteppingExecutor({4: oom}), Watched(), sampler=sampler
        )
    assert measured.gpu_util_pct == MeanAndPeak(mean=97, peak=97)
    assert measured.power_w == MeanAndPeak(mean=612.345, peak=612.345)
    assert measured.temperature_c is None
    assert (failed.gpu_util_pct, failed.power_w) == (None, None)
    (_, line, _) = (tmp_path / POINTS_FILE).read_text().splitlines()
    assert EnvelopePoint.model_validate_json(line) == measured
    assert "temperature_c" not in json.loads(line)


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    grid = cells([2, 4, 8], [16], ["fp32"])
    with pytest.raises(KeyboardInterrupt):
        sweep(settings(), grid, tmp_path, SteppingExecutor({4: KeyboardInterrupt()}), Watched())
    machine = SteppingExecutor()
    points = sweep(settings(), grid, tmp_path, machine, Watched())
    assert [spec.config.batch_size for spec in machine.specs] == [4, 8]
    assert [p.batch_size for p in points] == [2, 4, 8]
    wider = sweep(settings(), cells([16], [16], ["fp32"]), tmp_path, machine, Watched())
    assert [p.batch_size for p in wider] == [2, 4, 8, 16], "the earlier ones are part of it"


def test_broken_machinery_ends_the_sweep_and_is_no_point(tmp_path: Path) -> None:
    grid = cells([2, 4], [16], ["fp32"])
    machine = SteppingExecutor({4: MachineryError("disk full")})
    with pytest.raises(MachineryError):
        sweep(settings(), grid, tmp_path, machine, Watched())
    lines = (tmp_path / POINTS_FILE).read_text().splitlines()
    assert [json.loads(line).get("batch_size") for line in lines[1:]] == [2]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(allow_unsandboxed=True) as executor:
        yield executor


@pytest.mark.slow
def test_real_trials_on_random_tokens(tmp_path: Path, executor: LocalExecutor) -> None:
    """One trial runs out of memory, no backend trains another, and two are measured."""
    asked = settings(memory_gib=1.0)
    large = asked.base.model_copy(update={"d_model": 512, "d_ff": 2048})
    asked = asked.model_copy(update={"base": large})
    watched = Watched()
    grid = (Cell("fp32", 16, 2), Cell("fp32", 16, 8), Cell("fp32", 512, 512), Cell("fp8", 16, 2))
    points = sweep(asked, grid, tmp_path, executor, watched)
    assert [p.status for p in points] == ["ok", "ok", "oom", "refused"], points
    for p in points[:2]:
        assert p.tokens_per_s == pytest.approx(1e3 * p.tokens_per_step / (p.step_ms or 0))
        assert 0.05 < (p.peak_mem_gib or 0) < 1
    curve = (tmp_path / "trials" / "fp32-b2-s16" / "curve.jsonl").read_text().splitlines()
    ends_s = {p.step: p.elapsed_s for p in map(CurvePoint.model_validate_json, curve)}
    assert points[0].step_ms == pytest.approx(1e3 * (ends_s[4] - ends_s[2]) / 2)


def unified(
    backend: BackendName = "megatron", **changes: Any
) -> tuple[EnvelopeSettings, AnalyticMemory]:
    """Return the settings of the published GB10 envelope, and a memory model of that machine."""
    device: dict[str, Any] = {"backend": backend, "device": "cuda", "vocab_size": GB10_VOCAB}
    memory = AnalyticMemory(**{"limit_gib": 30, **device, **changes})
    return settings(menu="spark-354m", base=gb10_base(), **device), memory


def test_a_sweep_stops_at_the_last_point_that_is_predicted_to_fit(tmp_path: Path) -> None:
    """On a machine of 30 GiB the published GB10 points up to 25.65 GiB fit, and 49.24 does not."""
    grid, machine = cells([2, 4, 8, 16], [2048], ["bf16"]), SteppingExecutor()
    asked, memory = unified()
    points = sweep(asked, grid, tmp_path, machine, Watched(), memory=memory)
    assert [p.status for p in points] == ["ok", "ok", "ok", "beyond"]
    assert len(machine.specs) == 3, "the last was not run"
    # Without a memory model it runs past the limit.
    points = sweep(asked, grid, tmp_path, machine, Watched())
    assert [p.status for p in points] == ["ok", "ok", "ok", "ok"]
    assert len(machine.specs) == 4


def test_what_a_smaller_step_ran_out_of_a_larger_one_does_not_try() -> None:
    asked, memory = unified(limit_gib=1000)
    ran_out = [failed(batch_size=2, seq_len=1024, precision="bf16", status="oom")]

    def why(precision: str, seq_len: int, batch_size: int) -> str | None:
        return why_beyond(asked.config(Cell(precision, seq_len, batch_size)), memory, ran_out)

    assert why("bf16", 1024, 4)
    assert why("bf16", 512, 2) is None
    assert why("fp8", 1024, 4) is None, "of another precision"


def test_a_trial_of_the_sweep_keeps_the_reserve_that_was_asked_for(tmp_path: Path) -> None:
    machine = SteppingExecutor()
    sweep(settings(), cells([1], [16], ["fp32"]), tmp_path, machine, Watched(), reserve_gib=3)
    assert [spec.limits.reserve_gib for spec in machine.specs] == [3]


def test_random_tokens_are_a_corpus_like_any_other(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    assert is_intact(corpus)
    info = corpus.info
    assert info.vocab_size == 300
    assert int(corpus.train.max()) == info.separator_id == 299
    assert len(set(corpus.train.tolist())) == 300
    (text,) = corpus_texts(corpus, "heldout")
    assert len(text.encode()) == info.heldout_bytes
    assert [int(word) for word in text.split()] == corpus.heldout[1:].tolist()


def test_random_tokens_are_made_once_and_are_long_enough(tmp_path: Path) -> None:
    first = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    again = random_corpus(tmp_path, vocab_size=300, longest_seq_len=64)
    assert again.directory == first.directory
    longer = random_corpus(tmp_path, vocab_size=300, longest_seq_len=100_000)
    assert longer.info.train_tokens > 100_000
    assert open_corpus(longer.directory).info == longer.info


@pytest.mark.parametrize(("spec", "size"), [("bytes", 257), ("bpe:50257", 50257)])
def test_a_tokenizers_vocabulary_is_known_without_training_it(spec: str, size: int) -> None:
    assert vocabulary_of(spec) == size


def test_a_tokenizer_files_vocabulary_counts_the_separator(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    assert vocabulary_of(f"file:{corpus.directory / 'tokenizer.json'}") == 300
