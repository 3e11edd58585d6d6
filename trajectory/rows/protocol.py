"""Declare the settings that rows record: the evaluation protocol, and the judge's rules.

The rules are defined here and not beside the judge (:mod:`agent.judge`), because the record
outlives the code that decided. :class:`trajectory.rows.Decision` has a field for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import not_
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from autoresearch.options import AsOption
from autoresearch.values import Finite, Frozen, NonNegative
from trainer.schema import RunSchedule


class EvaluationProtocol(RunSchedule):
    """The settings that a campaign never changes, besides its menu and its text.

    Each is declared here or in :class:`RunSchedule` and nowhere else. A campaign's settings and its
    first row inherit them, so a new field is a key of campaign.toml, an option of ``loop`` and a
    part of the first row, and a session that would change it is refused. A field whose default
    means that nothing was chosen is left out of the row.
    """

    backend: str
    """Library that builds the model; ``command`` in the first row if a command trains."""
    device: str = Field(
        "cpu",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="auto (CUDA if it works, else the CPU), cpu, cuda or cuda:N. Default: auto.",
    )
    """Device of the trials. A campaign's settings never say ``auto``, which
    :mod:`agent.session.lane_opening` replaces."""
    cudnn_attention: Annotated[bool, AsOption(by_set=True, built_in=True)] = Field(
        False,
        strict=True,
        exclude_if=not_,
        description="Let torch use cuDNN's attention on a GPU.",
    )
    """This changes the last digits of sums, so a campaign uses it always or never."""
    reserve_holdout: Annotated[bool, AsOption(by_set=True, built_in=True)] = Field(
        False,
        strict=True,
        validation_alias=AliasChoices("reserve_holdout", "hold_back"),
        exclude_if=not_,
        description="Do not train the search on the text reserved for the confirmation.",
    )
    """This changes the batches and so the scores; a campaign does it always or never."""
    reference: Annotated[Literal["incumbent", "baseline"], AsOption(by_set=True)] = Field(
        "incumbent", description="Config that proposals edit: incumbent or baseline."
    )
    seed: Annotated[int, AsOption(bounds=(0, None))] = Field(
        0, ge=0, le=10**9, description="Seed of all random choices."
    )

    def differences(self, here: EvaluationProtocol, names: Iterable[str]) -> list[str]:
        """Return a clause for each of these settings that differs from those of a session."""
        return [
            f"{name} is {getattr(self, name)} there and {getattr(here, name)} here"
            for name in names
            if getattr(self, name) != getattr(here, name)
        ]


Z_OBVIOUS = 3.0


class Rules(Frozen):
    """The judge's thresholds; each is a setting of a campaign (:mod:`agent.settings.campaign`)."""

    z_keep: Annotated[NonNegative, AsOption(by_set=True)] = Field(
        1.5, description="Standard errors by which a gain must exceed zero to be kept."
    )
    """Standard errors by which a gain must exceed zero at the race's end."""
    z_drop: Annotated[NonNegative, AsOption(by_set=True)] = Field(
        0.5, description="Futility bound: standard errors of optimism before a race is abandoned."
    )
    """Standard errors of optimism from the second pair on. A race ends if its candidate could not
    reach the bar even if its true gain were larger by this amount."""
    early_stopping_threshold: Annotated[Finite, AsOption(by_set=True)] = Field(
        0.0,
        validation_alias=AliasChoices("early_stopping_threshold", "first_drop"),
        description="Loss on the first pair of runs, in standard deviations, that ends a race.",
    )
    """Loss on the first pair, in ``sigma_d``, that ends a race.

    If negative, only a candidate that gained this much continues. A second run costs as much as the
    next idea. At 0, half of the candidates that are as good as their reference are dropped after
    one run. If they are better by ``sigma_d``, one in six is dropped.
    """
    max_runs: Annotated[int, AsOption(by_set=True)] = Field(
        4,
        ge=2,
        le=1000,
        description="Largest number of seeds on which a candidate meets its reference.",
    )
    """Largest number of seeds on which a candidate and its reference are trained."""

    def keeps_early(self, z: float, pairs: int) -> bool:
        """Return whether a gain of this many standard errors wins the race before its last pair."""
        return pairs >= 2 and z >= max(Z_OBVIOUS, self.z_keep)
