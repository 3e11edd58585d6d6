"""Define a curriculum: the parts of a run that differ in sequence length, data or parallelism."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import ConfigDict, Field

from autoresearch.values import Frozen

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Ranks = Annotated[int, Field(gt=0, le=4096)]
SUM_TOLERANCE = 1e-6


class Phase(Frozen):
    """One ``[[phases]]`` table of a target's file; the phases run in the order of the file."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,23}$")]
    share: Share
    """Share of the run's tokens; the shares of all phases add up to 1."""
    seq_len: Annotated[int, Field(gt=0, le=10**8)] | None = None
    """Tokens per sequence; None: the target's."""
    mix: dict[Annotated[str, Field(pattern=r"^[\w.+-]{1,64}$")], Share] = Field(
        default_factory=dict
    )
    """Weights of prepared corpora by name, which sum to 1; empty: the user's DATA_PATH."""
    rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Learning rate at the end of the phase, as a share of the peak.

    None: the rate that a single schedule over all tokens has there.
    """
    tensor: Ranks | None = None
    """Tensor-parallel GPUs; None: the plan chooses."""
    pipeline: Ranks | None = None
    """Pipeline stages; None: the plan chooses."""
    rope_base: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None
    """Base of rotary positions; None: that of the previous phase."""


def phases_problem(phases: Sequence[Phase], *, seq_len: int, positions: str) -> str | None:
    """Return the first problem of the phases and its fix, in words; None if there is none."""
    found = (*_of_all(phases), *_of_each(phases, seq_len, positions))
    return found[0] if found else None


def _of_all(phases: Sequence[Phase]) -> Iterator[str]:
    names = [phase.name for phase in phases]
    for name in names:
        if names.count(name) > 1:
            yield f"two phases are called {name}; rename one of them"
    total = math.fsum(phase.share for phase in phases)
    if phases and abs(total - 1) > SUM_TOLERANCE:
        yield f"the phases' shares add up to {total:.6g}, not 1; correct them"
    rates = [phase.rate for phase in phases if phase.rate is not None]
    if rates != sorted(rates, reverse=True):
        yield f"the phases' rates rise ({', '.join(f'{rate:g}' for rate in rates)}); correct them"


def _of_each(phases: Sequence[Phase], seq_len: int, positions: str) -> Iterator[str]:
    for phase in phases:
        weights = math.fsum(phase.mix.values())
        if phase.mix and abs(weights - 1) > SUM_TOLERANCE:
            yield f"the mix of phase {phase.name} adds up to {weights:.6g}, not 1; correct it"
        if positions == "learned" and phase.seq_len not in (None, seq_len):
            yield (
                f"phase {phase.name} has sequences of {phase.seq_len} and learned positions end at "
                f"{seq_len}; take rotary ones, or keep seq_len"
            )
        if positions == "learned" and phase.rope_base is not None:
            yield f"phase {phase.name} has a rope_base and positions are learned; leave it out"
