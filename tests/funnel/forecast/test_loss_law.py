from __future__ import annotations

import numpy as np
import pytest

from autoresearch.errors import HandoffError
from funnel.forecast.loss_law import LawBand, fit_loss_law
from tests.support.configs import config
from tests.support.stressed import curve, law
from trainer.spec import CurvePoint

OF = config()
TRUE = law()
SEEN = np.geomspace(60, 480, 8) * OF.tokens_per_step
BEYOND = np.geomspace(4, 64, 5) * 500 * OF.tokens_per_step


def band(seed: int, *, runs: int = 2, level_sd: float = 0.01, noise: float = 0.1) -> LawBand:
    curves = [
        curve(OF, TRUE, seed=10 * seed + run, level_sd=level_sd, noise=noise) for run in range(runs)
    ]
    return fit_loss_law(curves, warmup=OF.lr_warmup, run_sd=level_sd, seed=0)


def share_inside(of: LawBand, tokens: np.ndarray) -> float:
    low, _, high = of.quantiles(tokens)
    truth = np.array([TRUE(t) for t in tokens])
    return float(((low <= truth) & (truth <= high)).mean())


def test_the_band_holds_the_truth_about_as_often_as_it_says() -> None:
    bands = [band(seed) for seed in range(40)]
    assert np.mean([share_inside(b, SEEN) for b in bands]) > 0.9
    assert np.mean([share_inside(b, BEYOND) for b in bands]) > 0.9
    low, _, high = bands[0].quantiles(SEEN)
    assert (high / low < 1.1).all(), "nor is it so wide that it says nothing"


def test_doubt_grows_beyond_what_was_seen_and_never_upwards() -> None:
    found = band(1)
    low, _, high = found.quantiles(BEYOND)
    seen_low, _, seen_high = found.quantiles(np.array([float(found.fall.to_tokens)]))
    assert (np.diff(np.log(high / low)) > 0).all()
    assert (high <= seen_high[0] * (1 + 1e-9)).all()
    assert (low < seen_low[0]).all()


def test_one_run_will_do_and_the_same_seed_gives_the_same_band() -> None:
    one, again = band(3, runs=1), band(3, runs=1)
    assert one.fall == again.fall
    assert np.array_equal(one.quantiles(SEEN), again.quantiles(SEEN))
    assert one.fall.runs == 1


def test_warm_up_and_the_end_of_the_cosine_are_left_out() -> None:
    fall = band(4).fall
    assert fall.from_tokens == (max(2 * OF.lr_warmup, 50) + 1) * OF.tokens_per_step
    # A cosine from 1 to 0.1 falls below four fifths before a third of the schedule.
    assert 250 < fall.to_tokens / OF.tokens_per_step < 350


def test_what_annealing_gains_is_not_taken_for_the_recipes_progress() -> None:
    """Annealing lowers the loss by a tenth of a nat at the end, in proportion to the fall of the
    rate. A law fitted until half of the peak covers the truth in half of the cases."""

    def annealed(seed: int) -> list[CurvePoint]:
        made = curve(OF, TRUE, seed=seed, level_sd=0.01, noise=0.1)
        peak = max(point.lr or 0.0 for point in made)
        gains = [0.1 * (1 - (p.lr or 0.0) / peak) * (p.step > OF.lr_warmup) for p in made]
        return [
            p.model_copy(update={"loss": p.loss - gain})
            for p, gain in zip(made, gains, strict=True)
        ]

    found = [
        fit_loss_law(
            [annealed(10 * seed), annealed(10 * seed + 1)],
            warmup=OF.lr_warmup,
            run_sd=0.01,
            seed=0,
        )
        for seed in range(12)
    ]
    assert np.mean([share_inside(band, BEYOND) for band in found]) > 0.9


def test_a_curve_too_short_for_a_law_is_refused() -> None:
    with pytest.raises(HandoffError, match="--steps"):
        fit_loss_law([curve(OF, TRUE, steps=25)], warmup=10, run_sd=0.01, seed=0)
