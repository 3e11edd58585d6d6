"""The memory rail predicts with an envelope, or with formulas where there is none."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from autoresearch.errors import EnvelopeError, MachineryError
from tests.support.envelopes import (
    GB10_VOCAB,
    gb10_base,
    gb10_envelope,
    point,
    settings,
)
from trainer.envelope import (
    Cell,
    Envelope,
    FittedMemory,
    MemoryChoice,
    choose_memory,
    envelope_path,
)
from trainer.memory.estimate import AnalyticMemory, DeviceLimit, parameter_count
from trainer.spec import Config


def test_another_shape_is_scaled_by_the_estimates_ratio() -> None:
    envelope = gb10_envelope()
    rail = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    analytic = AnalyticMemory(
        vocab_size=GB10_VOCAB, backend="megatron", device="cuda", limit_gib=119
    )
    base = gb10_base()
    deeper = base.model_copy(update={"n_layer": 48})
    line = envelope.fit_of("fp8")
    assert line is not None
    assert rail.predict_gib(deeper) == pytest.approx(
        line.predict_gib(16 * 1024) * analytic.predict_gib(deeper) / analytic.predict_gib(base)
    )
    assert rail.predict_gib(deeper) > rail.predict_gib(base)
    fewer_words = FittedMemory(envelope, vocab_size=1024, limit_gib=119)
    assert fewer_words.predict_gib(base) < rail.predict_gib(base)


def test_the_rail_refuses_what_would_be_killed_beside_a_neighbour(tmp_path: Path) -> None:
    def rail(places: int) -> MemoryChoice:
        path = tmp_path / "none"
        return choose_memory(path, vocab_size=300, backend="torch", device="cpu", places=places)

    alone, beside = rail(1), rail(8)
    assert alone.model is not None
    assert beside.model is not None
    assert beside.model.limit_gib == pytest.approx(alone.model.limit_gib / 8)
    assert "shared by 8" in beside.description
    assert "shared" not in alone.description


def test_what_the_defaults_need_of_a_gpu_is_reported_and_refused_where_it_is_not_free() -> None:
    def rail(free_gib: float) -> MemoryChoice:
        model = AnalyticMemory(
            vocab_size=GB10_VOCAB, backend="torch", device="cuda", limit_gib=free_gib
        )
        return MemoryChoice(model, "analytic estimate")

    base = gb10_base()
    need_gib = rail(1).model.predict_gib(base)  # type: ignore[union-attr]
    fits = rail(need_gib + 0.1).for_defaults(base, "spark-354m", "cuda")
    assert fits.description == f"analytic estimate; the defaults need {need_gib:.1f} GiB"
    tight = rail(need_gib - 0.1)
    with pytest.raises(MachineryError) as why:
        tight.for_defaults(base, "spark-354m", "cuda")
    assert "\n" not in str(why.value)
    assert tight.for_defaults(base, "spark-354m", "cpu") == tight


def test_a_mean_of_the_weights_takes_four_bytes_a_parameter(tmp_path: Path) -> None:
    plain = choose_memory(tmp_path / "none", vocab_size=GB10_VOCAB, backend="torch", device="cpu")
    averaging = plain.with_average(GB10_VOCAB)
    assert plain.model is not None
    assert averaging.model is not None
    base = gb10_base()
    more_gib = averaging.model.predict_gib(base) - plain.model.predict_gib(base)
    assert more_gib * 2**30 == pytest.approx(4 * parameter_count(base, GB10_VOCAB))
    assert averaging.model.limit_gib == plain.model.limit_gib
    assert averaging.with_average(GB10_VOCAB) == averaging
    for five in (plain.with_average(GB10_VOCAB, 5), averaging.with_average(GB10_VOCAB, 5)):
        assert five.model is not None
        all_gib = five.model.predict_gib(base) - plain.model.predict_gib(base)
        assert all_gib == pytest.approx(5 * more_gib)


@pytest.mark.parametrize(("backend", "device"), [("torch", "cuda"), ("torch", "cpu")])
def test_whichever_moments_are_largest_the_rail_keeps_the_estimates_proportions(
    backend: str, device: str
) -> None:
    """The machine takes a tenth more than the estimate, plus half a GiB."""
    analytic = AnalyticMemory(vocab_size=GB10_VOCAB, backend=backend, device=device, limit_gib=119)

    def peak_gib(shape: Config) -> float:
        return 1.1 * analytic.predict_gib(shape) + 0.5

    base = gb10_base().model_copy(update={"precision": "bf16"})
    steps = [base.model_copy(update={"batch_size": batch}) for batch in (1, 2, 4, 8, 16)]
    points = [
        point(**one.model_dump(include=set(Cell._fields)), peak_mem_gib=peak_gib(one))
        for one in steps
    ]
    asked = settings(base=base, vocab_size=GB10_VOCAB, backend=backend, device=device)
    envelope = Envelope.of(asked, DeviceLimit(gib=119, source="system"), points)
    line = envelope.fit_of("bf16")
    assert line is not None
    rail = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    for one in steps:
        assert rail.predict_gib(one) == pytest.approx(line.predict_gib(one.tokens_per_step))
    shapes = itertools.product((256, 512, 2048), (2, 24, 48), (True, False), ("gelu", "swiglu"))
    for width, layers, tied, activation in shapes:
        for batch_size, seq_len in itertools.product((1, 2, 16, 64), (64, 1024)):
            other = base.model_copy(
                update={
                    "d_model": width,
                    "d_ff": 4 * width,
                    "n_layer": layers,
                    "tie_embeddings": tied,
                    "activation": activation,
                    "batch_size": batch_size,
                    "seq_len": seq_len,
                }
            )
            assert 1 < rail.predict_gib(other) / analytic.predict_gib(other) < 1.4, other


def test_a_precision_that_was_not_measured_is_estimated() -> None:
    rail = FittedMemory(gb10_envelope(), vocab_size=GB10_VOCAB, limit_gib=119)
    analytic = AnalyticMemory(
        vocab_size=GB10_VOCAB, backend="megatron", device="cuda", limit_gib=119
    )
    fp32 = gb10_base().model_copy(update={"precision": "fp32"})
    assert rail.predict_gib(fp32) == analytic.predict_gib(fp32)


def test_the_rail_takes_the_envelope_where_there_is_one(tmp_path: Path) -> None:
    path = envelope_path(tmp_path, menu_sha256="a" * 64, backend="torch", device="cpu")

    def choice(**more: float) -> tuple[type, str, float]:
        chosen = choose_memory(path, vocab_size=300, backend="torch", device="cpu", **more)
        return type(chosen.model), chosen.description, chosen.model.limit_gib

    kind, description, _ = choice()
    assert kind is AnalyticMemory
    points = [point(batch_size=b, peak_mem_gib=0.2 + 0.01 * b) for b in (2, 4, 8)]
    Envelope.of(settings(), DeviceLimit(gib=9, source="system"), points).save(path)
    kind, description, limit_gib = choice(trial_limit_gib=0.5)
    assert kind is FittedMemory
    assert "fp32 ± 0.00 GiB over 3 points" in description
    assert limit_gib == 0.5
    path.write_text("{")
    with pytest.raises(EnvelopeError):
        choice()


def test_a_campaign_that_compiles_is_told_more_than_an_envelope_that_did_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "envelope.json"
    points = [point(batch_size=b, peak_mem_gib=0.2 + 0.01 * b) for b in (2, 4, 8)]
    asked = settings(device="cuda")
    envelope = Envelope.of(asked, DeviceLimit(gib=9, source="system"), points)
    eager, compiled = (
        FittedMemory(envelope, vocab_size=300, limit_gib=9, compile=compiles)
        for compiles in (False, True)
    )
    large = asked.base.model_copy(update={"batch_size": 4096})
    assert compiled.predict_gib(large) > 1.2 * eager.predict_gib(large)
    chosen = (
        choose_memory(path, vocab_size=300, backend="torch", device="cpu", compile=compiles).model
        for compiles in (False, True)
    )
    assert len({model.predict_gib(large) for model in chosen}) == 1, "on a CPU it is all one"


def test_envelopes_of_other_devices_and_backends_are_kept_apart(tmp_path: Path) -> None:
    def path(**changes: str) -> Path:
        asked = {"menu_sha256": "a" * 64, "backend": "torch", "device": "cuda:0", **changes}
        return envelope_path(tmp_path, **asked)

    others = ({"menu_sha256": "b" * 64}, {"backend": "megatron"}, {"device": "cpu"})
    assert len({path(), *(path(**other) for other in others)}) == 4
    assert path() == path(device="cuda:1"), "the same kind of device"
