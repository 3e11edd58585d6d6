"""The settings of a campaign: the content of its campaign.toml, each declared here and only here.

A field's type, bounds and default are those of the setting, and its description is the help of its
option (:mod:`agent.commands.options`). :class:`trajectory.rows.EvaluationProtocol` holds what a
campaign may never change, :class:`Policy` what a session may.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from autoresearch.campaign_files import read_file
from autoresearch.errors import SettingsError
from autoresearch.options import AsOption, toml_values
from autoresearch.values import Frozen, PositiveInt, explain
from autoresearch.words import is_utf8, toml_text
from trainer.schema import MOST_MEMORY_GIB, BackendName, MemoryGib
from trajectory.rows import CampaignRow, EvaluationProtocol, Rules

MOST_LANES = 256
MOST_THREADS = 4096
ProposerKind = Literal["hybrid", "sampler", "random", "llm", "library"]


def _lanes(value: Any) -> Any:
    if not isinstance(value, str) or value == "auto":
        return value
    try:
        lanes = int(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither a number of lanes nor 'auto'") from None
    if not 1 <= lanes <= MOST_LANES:
        raise ValueError(f"{lanes} lanes are too many or too few; set 1 to {MOST_LANES}")
    return lanes


DEFAULT_MENU = "cpu-modern"


class Sources(Frozen):
    """The sources of a campaign's menu and text. The first row holds their content, and a resumed
    campaign uses that alone."""

    menu: str = Field(
        description=f"Name of a shipped menu, or a TOML file. Default: {DEFAULT_MENU}."
    )
    corpus: Annotated[str, AsOption(built_in=True)] = Field(
        description="Text to train on: stdlib, a file, a folder, hf:NAME or a prepared corpus. "
        "Default: the menu's."
    )
    tokenizer: Annotated[str, AsOption(built_in=True)] = Field(
        description="Tokenizer: bytes, bpe:VOCAB or file:PATH. Default: the menu's."
    )
    heldout_bytes: Annotated[PositiveInt, AsOption(built_in=True)]


class _Search(Frozen):
    """Settings of the baseline and of the proposers."""

    baseline_seeds: Annotated[int, AsOption(bounds=(2, None))] = Field(
        5,
        ge=2,
        le=1000,
        description="Seeds the baseline is trained on at the start, to measure the noise.",
    )
    """At least two, because the noise cannot be estimated without a replicate."""
    proposer: ProposerKind = Field(
        "hybrid",
        description="Source of proposals: hybrid (sampler and model), sampler, random, llm, or "
        "library (published ideas for code knobs).",
    )
    max_changes: Annotated[PositiveInt | None, AsOption(by_set=True)] = Field(
        None,
        description="Largest number of knobs a proposal may change. Default: all; a model is asked "
        "for at most eight.",
    )
    code_price: Annotated[float, AsOption(built_in=True, by_set=True)] = Field(
        2.0,
        ge=1,
        le=1000,
        description="Largest time and memory of a code knob's function, as a multiple of what is "
        "built in.",
    )
    """The rail ``code_run`` compares a step of a small model."""


class _Means(Frozen):
    """Resources for the language model's proposals and for trials."""

    llm_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Chance of the language model's first turn; later ones follow its record.",
    )
    prompt_tokens: int = Field(6000, ge=1000, description="Longest prompt in tokens.")
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] | None = Field(
        None, description="CPU threads per trial. Default: all cores of its lane."
    )
    lanes: Annotated[
        PositiveInt | Literal["auto"], BeforeValidator(_lanes), AsOption(read=_lanes)
    ] = Field(1, description="Trials at once, each on its own cores or GPU: a number or 'auto'.")
    """``auto`` until the first session finds a number, which then replaces it."""
    executor: Annotated[str, Field(pattern=r"^(local|(ray|slurm)(:.+)?)$")] = Field(
        "local",
        description="Where trials run: local, ray (this machine's cluster), ray:HOST:PORT, or"
        " 'slurm:OPTIONS' with options of sbatch.",
    )
    device_kind: Annotated[str | None, AsOption(by_set=True)] = Field(
        None,
        description="Processor or GPU that nodes must have, by its name. Default: the most common.",
    )
    """None until the first session on a cluster, which chooses the most common kind there."""
    trial_wall_s: Annotated[float, AsOption(by_set=True)] = Field(
        1800, gt=0, allow_inf_nan=False, description="Time limit of a trial in seconds."
    )
    trial_memory_gib: Annotated[MemoryGib | None, AsOption(bounds=(0.1, MOST_MEMORY_GIB))] = Field(
        None, description="Memory limit of a trial in GiB."
    )
    allow_unsandboxed: Annotated[bool, AsOption("--allow-unsandboxed")] = Field(
        False, description="Run trials even if the kernel lacks Landlock."
    )
    prune: Annotated[bool, AsOption(by_set=True)] = Field(
        True, description="Stop a trial early when its loss curve cannot win."
    )


class Policy(_Means, Rules, _Search):
    """The settings that a session may change, including the judge's rules. Every decision row
    carries the rules it was made with.

    Fields stand in the order of the bases from the last to the first, as in campaign.toml.
    """

    def rules(self) -> Rules:
        """Return the judge's rules."""
        return Rules.model_validate({name: getattr(self, name) for name in Rules.model_fields})


MOST_SETTINGS_BYTES = 1 << 20

_LEFT_OUT = (
    ("lanes", 1),
    ("executor", "local"),
    ("allow_unsandboxed", False),
    ("code_price", 2.0),
)
"""Values that campaign.toml leaves out, because earlier versions do not know their keys."""


class CampaignSettings(Policy, EvaluationProtocol, Sources):
    """Everything a campaign is created with: the content of its campaign.toml."""

    backend: Annotated[BackendName, AsOption(built_in=True)] = Field(
        "torch", description="Library that builds the model: torch or megatron."
    )

    @model_validator(mode="after")
    def _check_utf8(self) -> Self:
        for name, value in self:
            if isinstance(value, str) and not is_utf8(value):
                raise ValueError(
                    f"{name} {value!r} is not valid UTF-8, so no settings file and no journal can "
                    "hold it; rename it"
                )
        return self

    @model_validator(mode="after")
    def _check_last_step_known(self) -> Self:
        by_clock = self.budget.unit == "seconds"
        if by_clock and (self.cooldown_steps or (self.average and self.average.form == "lawa")):
            raise ValueError(
                f"a budget of {self.budget} has no known last step, which a cooldown and lawa "
                "need; set steps or tokens, or leave them out"
            )
        if self.budget.unit == "steps" and self.cooldown_steps > self.budget.amount:
            raise ValueError(
                f"a cooldown of {self.cooldown_steps} steps is longer than {self.budget}; "
                "make it shorter"
            )
        return self

    @classmethod
    def in_first_row(cls) -> list[str]:
        """Return the names of the settings that the first row holds unchanged: the evaluation
        protocol, and the part of the policy that has a field in that row."""
        begun_with = (name for name in Policy.model_fields if name in CampaignRow.model_fields)
        return [*EvaluationProtocol.model_fields, *begun_with]

    def to_toml(self) -> str:
        """Return the text of campaign.toml."""
        lines = ["# The settings this campaign was created with."]
        lines += (
            f"{name} = {toml_text(value)}"
            for name, value in toml_values(self).items()
            if (name, value) not in _LEFT_OUT
        )
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a campaign.toml.

        :raises SettingsError: naming the file and what is wrong in it.
        """
        try:
            text = read_file(path.parent, path.name, MOST_SETTINGS_BYTES).decode("utf-8")
            said = tomllib.loads(text)
            return cls.model_validate({k: v for k, v in said.items() if k not in _GONE})
        except ValidationError as error:
            raise SettingsError(f"{path} is not a campaign's settings: {explain(error)}") from error
        except (OSError, ValueError, RecursionError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(f"{path} cannot be read as TOML: {why}; repair it") from error


_GONE = ("llm_warmup",)
"""Settings of earlier versions that nothing reads any more."""


Block: TypeAlias = Literal["search", "calibration", "confirm", "stress", "ladder", "attribution"]

_PER_CAMPAIGN = 1000
_BLOCKS: dict[Block, range] = {
    "search": range(700),
    "calibration": range(700, 800),
    "confirm": range(800, 900),
    "stress": range(900, _PER_CAMPAIGN),
    "ladder": range(900, _PER_CAMPAIGN),
    "attribution": range(_PER_CAMPAIGN - 1, 899, -1),
}
"""Seed offsets, in the order in which they are assigned. Long runs share a block: ladders begin
after the seeds of the stress test, and attributions at the other end."""


def seeds_of(campaign_seed: int, block: Block) -> range:
    """Return the seeds of one kind of work, in the campaign with this seed."""
    offsets, first = _BLOCKS[block], _PER_CAMPAIGN * campaign_seed
    return range(first + offsets.start, first + offsets.stop, offsets.step)
