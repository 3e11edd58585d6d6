"""Declare the evaluation protocol: the settings that a campaign never changes."""

from __future__ import annotations

from collections.abc import Iterable
from operator import not_
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from autoresearch.values import AsOption
from trainer.spec import RunSchedule


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
    :mod:`agent.workbench.lane_opening` replaces."""
    compile: Annotated[bool, AsOption(built_in=True)] = Field(
        False, strict=True, description="Compile the model with torch.compile."
    )
    """Compilation changes the last digits of sums, so a campaign uses it always or never."""
    cudnn_attention: Annotated[bool, AsOption(by_set=True, built_in=True)] = Field(
        False,
        strict=True,
        exclude_if=not_,
        description="Let torch use cuDNN's attention on a GPU.",
    )
    """This changes the last digits too."""
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
