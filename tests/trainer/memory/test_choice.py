"""The memory rail predicts with formulas, within what a trial may use."""

from dataclasses import replace

import pytest

from autoresearch.errors import MachineryError
from tests.support.envelopes import GB10_VOCAB, gb10_base
from trainer.memory.estimate import AnalyticMemory, MemoryChoice, choose_memory, parameter_count


def test_the_rail_refuses_what_would_be_killed_beside_a_neighbor() -> None:
    def rail(places: int) -> MemoryChoice:
        return choose_memory(vocab_size=300, backend="torch", device="cpu", places=places)

    alone, beside = rail(1), rail(8)
    assert alone.model and beside.model
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
    assert fits.model is not None
    parts = fits.model.parts(base)
    for number in (need_gib, parts.fixed_bytes / 2**30, parts.per_token_bytes / 2**20):
        assert f"{number:.1f}" in fits.description
    tight = rail(need_gib - 0.1)
    with pytest.raises(MachineryError) as why:
        tight.for_defaults(base, "spark-354m", "cuda")
    assert "\n" not in str(why.value)
    assert tight.for_defaults(base, "spark-354m", "cpu") == tight


@pytest.mark.parametrize("means", [1, 5])
def test_a_mean_of_the_weights_takes_four_bytes_a_parameter(means: int) -> None:
    plain, one = (
        choose_memory(vocab_size=GB10_VOCAB, backend="torch", device="cpu", average=average).model
        for average in (False, True)
    )
    assert plain and one and one.means == 1
    averaging = replace(one, means=means)
    more_gib = averaging.predict_gib(gb10_base()) - plain.predict_gib(gb10_base())
    assert more_gib * 2**30 == pytest.approx(4 * means * parameter_count(gb10_base(), GB10_VOCAB))
    assert averaging.limit_gib == plain.limit_gib


def test_a_trials_own_limit_bounds_it() -> None:
    how = {"vocab_size": 300, "backend": "torch", "device": "cpu"}
    bounded = choose_memory(**how, trial_limit_gib=0.5).model
    assert bounded
    assert bounded.limit_gib == 0.5
