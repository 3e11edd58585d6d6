"""The settings a campaign is created with: the content of its campaign.toml."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError

from autoresearch.errors import SettingsError
from autoresearch.given_file import read_given
from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, PositiveInt, explain
from trainer.spec import BackendName, Budget

ReferenceMode = Literal["incumbent", "baseline"]
ProposerKind = Literal["hybrid", "sampler", "random", "llm"]


class CampaignSettings(Frozen):
    """Everything a campaign is created with: the content of its campaign.toml.

    The first group is the ruler and what it is laid against: fixed for the campaign's life. The
    second steers, and may differ from one resumption to the next; every decision row carries the
    values it was made with.
    """

    menu: str
    corpus: str
    """A corpus source (``stdlib``, a path, ``hf:NAME``) or a prepared corpus directory."""
    tokenizer: str
    heldout_bytes: PositiveInt
    budget: Budget
    horizon_steps: PositiveInt | None
    """None: the budget itself."""
    backend: BackendName = "torch"
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    compile: Annotated[bool, Field(strict=True)] = False
    """Train the torch backend's blocks compiled: other sums in the last digits, so one campaign
    does it always or never."""
    reference: ReferenceMode = "incumbent"
    seed: Annotated[int, Field(ge=0, le=10**9)] = 0

    baseline_seeds: Annotated[int, Field(ge=2, le=1000)] = 5
    """At least two: without a replicate nothing is known about the noise."""
    proposer: ProposerKind = "hybrid"
    max_changes: PositiveInt = 3
    z_keep: NonNegative = 1.3
    z_drop: NonNegative = 1.0
    first_drop: Finite = 0.35
    """See :class:`agent.judge.Rules`."""
    max_runs: Annotated[int, Field(ge=2)] = 4
    """Most common seeds a candidate and its reference race over."""
    llm_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    llm_warmup: NonNegativeInt = 10
    prompt_tokens: Annotated[int, Field(ge=1000)] = 6000
    threads: PositiveInt | None = None
    trial_wall_s: Annotated[float, Field(gt=0)] = 1800
    trial_memory_gib: Annotated[float, Field(gt=0)] | None = None
    prune: bool = True

    RULER: ClassVar[frozenset[str]] = frozenset(
        "menu corpus tokenizer heldout_bytes budget horizon_steps backend device compile"
        " reference seed".split()
    )

    def to_toml(self) -> str:
        """The text of campaign.toml; None is said by leaving a key out, but for the horizon."""
        lines = ["# The settings this campaign was created with."]
        for name in type(self).model_fields:
            value: Any = getattr(self, name)
            if name == "budget":
                value = str(value)
            elif name == "horizon_steps" and value is None:
                value = "budget"
            if value is not None:
                # A JSON string, number or boolean is the same TOML value.
                lines.append(f"{name} = {json.dumps(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a campaign.toml.

        :raises SettingsError: naming the file and what is wrong in it.
        """
        try:
            return cls.model_validate(parse_values(tomllib.loads(read_given(path).decode("utf-8"))))
        except ValidationError as error:
            raise SettingsError(f"{path} is not a campaign's settings: {explain(error)}") from error
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path} cannot be read as TOML: {error}") from error


def parse_values(values: dict[str, Any]) -> dict[str, Any]:
    """Settings as a person writes them, turned into what CampaignSettings takes."""
    values = dict(values)
    if isinstance(values.get("budget"), str):
        values["budget"] = Budget.parse(values["budget"])
    if values.get("horizon_steps") == "budget":
        values["horizon_steps"] = None
    return values
