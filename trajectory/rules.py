"""Hold the judge's rules as one value, which the judge applies and every decision's row records.

The rules are defined here and not beside the judge (:mod:`agent.judge`), because the record
outlives the code that decided. :class:`trajectory.rows.Decision` has a field for each of them.
"""

from typing import Annotated

from pydantic import AliasChoices, Field

from autoresearch.values import AsOption, Finite, Frozen, NonNegative

Z_OBVIOUS = 3.0


class Rules(Frozen):
    """The judge's thresholds; each is a setting of a campaign (:mod:`agent.settings.campaign`)."""

    z_keep: Annotated[NonNegative, AsOption(by_set=True)] = Field(
        1.3, description="Standard errors by which a gain must exceed zero to be kept."
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
