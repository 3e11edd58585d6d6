"""The environment, read here and nowhere else, and the settings a campaign is created with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent.errors import SettingsError
from agent.funnel.rates import DEFAULT_KWH_USD, Price, Rates
from agent.wording import did_you_mean
from trainer.given_file import read_given
from trainer.spec import (
    DEFAULT_RESERVE_GIB,
    BackendName,
    Budget,
    Finite,
    Frozen,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    explain,
)

ReferenceMode = Literal["incumbent", "baseline"]
ProposerKind = Literal["hybrid", "sampler", "random", "llm"]

KwhPrice: TypeAlias = Annotated[
    Price, Field(validation_alias=AliasChoices("KWH_USD", "AUTORESEARCH_USD_PER_KWH"))
]
"""The one price of electricity, for a campaign's own bill and for every money command: KWH_USD, or
by its other name AUTORESEARCH_USD_PER_KWH where KWH_USD is not set."""
_KWH_NAMES = "KWH_USD (or AUTORESEARCH_USD_PER_KWH)"


class Environment(BaseSettings):
    """What the environment says, as ``AUTORESEARCH_…`` variables.

    The API key stays a secret: it is handed to the endpoint's client and to nothing else, and no
    trial ever sees it.
    """

    model_config = SettingsConfigDict(env_prefix="AUTORESEARCH_", extra="ignore")

    llm_base_url: str | None = None
    """An OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    llm_model: str | None = None
    """None: the first model the endpoint lists."""
    llm_api_key: SecretStr | None = None
    llm_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """For one request, to the last byte of its reply; a large model may need more."""
    llm_deadline_s: Annotated[float, Field(gt=0)] = 120.0
    """For all tries of one question together; then the sampler makes that iteration's proposal."""
    usd_per_kwh: KwhPrice = DEFAULT_KWH_USD
    """For the cost of a campaign's measured energy."""
    data_dir: Path | None = None
    """Where prepared corpora are cached."""
    history_url: str | None = None
    """A SQLAlchemy URL to keep the history in instead of each campaign's own SQLite file."""
    memory_reserve_gib: NonNegative = DEFAULT_RESERVE_GIB
    """Kept from trials on a GPU that shares the machine's memory."""
    serve_token: SecretStr | None = None
    """What whoever looks at the live page from another machine has to show."""


class CudaEnvironment(BaseSettings):
    """Which GPUs CUDA was told to show, and in which order it numbers them."""

    model_config = SettingsConfigDict(extra="ignore")

    cuda_visible_devices: str | None = None
    cuda_device_order: str | None = None


class _RatesEnvironment(BaseSettings, Rates):
    """Rates from the environment, under their published names: H100_HOURLY_USD and so on."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    kwh_usd: KwhPrice = DEFAULT_KWH_USD


class _CacheHome(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")

    xdg_cache_home: Path | None = None


def read_environment() -> Environment:
    """The environment's settings.

    :raises SettingsError: naming the variable that makes no sense.
    """
    try:
        return Environment()
    except ValidationError as error:
        said = explain(error).replace("KWH_USD:", f"{_KWH_NAMES}:")
        raise SettingsError(f"an environment variable is not usable: {said}") from error


def read_rates(overrides: Mapping[str, str] | None = None) -> Rates:
    """The published defaults, over them the environment, over both ``overrides``.

    :param overrides: by published name, in any case: ``{"KWH_USD": "0.3"}``.
    :raises SettingsError: naming the variable that is unknown or makes no sense.
    """
    chosen = {name.lower(): value for name, value in (overrides or {}).items()}
    for name in chosen:
        if name not in Rates.model_fields:
            known = [field.upper() for field in Rates.model_fields]
            raise SettingsError(f"there is no rate {name.upper()!r}{did_you_mean(name, known)}")
    try:
        read = _RatesEnvironment.model_validate(chosen)
    except ValidationError as error:
        raise SettingsError(_unusable_rate(error)) from error
    return Rates(**read.model_dump())


def _unusable_rate(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    name = str(problem["loc"][0]).upper()
    if name == "KWH_USD":
        name = _KWH_NAMES
    said = problem["msg"].removeprefix("Input should be ").split(",")[0]
    return f"{name} is {str(problem['input'])!r:.60}, and should be {said}"


def data_dir() -> Path:
    """Where prepared corpora live: AUTORESEARCH_DATA_DIR, or the user's cache folder.

    :raises SettingsError: where nothing is set, and the user has no home.
    """
    try:
        chosen = read_environment().data_dir
        if chosen is None:
            cache = _CacheHome().xdg_cache_home or Path.home() / ".cache"
            chosen = cache / "autoresearch"
        return chosen.expanduser().absolute()
    except RuntimeError as error:  # a container's user whom no file names
        raise SettingsError(
            "this user has no home directory to keep corpora in; set AUTORESEARCH_DATA_DIR or HOME"
        ) from error


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
