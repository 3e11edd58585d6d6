"""Check how certain the model is that one config differs from another."""

from __future__ import annotations

import math

import pytest

from agent.proposers.contrasts import contrast
from tests.support.configs import config
from trajectory.evidence import ConfigEvidence
from trajectory.ranking import Noise

RACES = Noise(sigma=0.05, dof=100, sigma_d=0.01)
"""Parents and children share nearly all of a seed's effect; unrelated configs need not."""


def measured(name: str, *scores: float) -> ConfigEvidence:
    return ConfigEvidence(config(), name, 1, scores=dict(enumerate(scores)))


def stderr(one: ConfigEvidence, other: ConfigEvidence) -> float:
    found = contrast(one, other, RACES)
    assert found is not None
    assert found.stderr is not None
    return found.stderr


def test_one_pair_is_as_sure_as_unpaired_runs() -> None:
    assert stderr(measured("a", 3.0), measured("b", 3.1)) == pytest.approx(math.sqrt(2) * 0.05)


def test_the_pair_s_own_spread_counts() -> None:
    calm = stderr(measured("a", 3.0, 3.2, 2.9, 3.1), measured("b", 3.1, 3.3, 3.0, 3.2))
    wild = stderr(measured("a", 3.0, 3.2, 2.9, 3.1), measured("b", 3.3, 3.0, 3.2, 2.9))
    assert calm == pytest.approx(math.sqrt(4 * 2 * 0.05**2 / 7 / 4))
    assert wild > 2 * calm
    assert calm > RACES.sigma_d / 2
