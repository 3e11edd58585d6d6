"""Other rules for the bench are judged by the product's own judge."""

from __future__ import annotations

from agent.judge import Undecided, assess
from bench.judge_rules import OBrienFleming
from trajectory.ranking import Noise
from trajectory.rows import Decision
from trajectory.rules import Rules


def test_o_brien_and_fleming_keep_early_by_their_own_bar() -> None:
    """At the second pair of four the bar is 1.3 sqrt(2) = 1.84; the shipped rule has 3 there."""
    noise = Noise(sigma=0.1, dof=50, sigma_d=0.1)
    reference = {0: 3.0, 1: 3.0}
    candidate = {0: 2.86, 1: 2.86}  # z = 0.14 sqrt(2) / 0.1 = 1.98
    shipped, theirs = (
        assess(candidate, reference, noise, rules, reference_hash="0" * 64)
        for rules in (Rules(), OBrienFleming())
    )
    assert isinstance(shipped, Undecided)
    assert isinstance(theirs, Decision)
    assert theirs.action == "keep"
    assert not OBrienFleming().keeps_early(1e6, 1)
