"""Settings from the environment: ``AUTORESEARCH_…`` variables, prices of machines and power for the
cost arithmetic, and a few others."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from autoresearch.errors import SettingsError
from autoresearch.safe_text import learn, sendable, strip_variable
from autoresearch.values import Frozen, NonNegative, explain
from autoresearch.words import did_you_mean
from trainer.spec import DEFAULT_RESERVE_GIB

HOURS_PER_YEAR = 365.25 * 24
MONTHS_PER_YEAR = 12
GPUS_PER_NODE = 8
DEFAULT_KWH_USD = 0.13

Price = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=1e-6, le=1, allow_inf_nan=False)]
KwhPrice: TypeAlias = Annotated[
    Price, Field(validation_alias=AliasChoices("KWH_USD", "AUTORESEARCH_USD_PER_KWH"))
]
"""The one price of electricity, for a campaign's own bill and for every cost command. It is
KWH_USD, or AUTORESEARCH_USD_PER_KWH if KWH_USD is not set."""
KWH_NAMES = "KWH_USD (or AUTORESEARCH_USD_PER_KWH)"


class Rates(Frozen):
    """The inputs of every cost command, under their published names in lower case.

    The defaults are those of published cost arithmetic for a DGX Spark beside spot-priced cloud
    GPUs. ``target_scale`` and ``h100_speedup`` are constants there and inputs here.
    """

    h100_hourly_usd: Price = 2.50
    """Price of one rented H100 per hour."""
    h200_hourly_usd: Price = 3.50
    """Price of one rented H200 per hour."""
    b200_hourly_usd: Price = 5.25
    """Price of one rented B200 per hour. It is the middle of the 4.50 to 6.00 that specialized
    clouds were reported to ask on demand in March 2026 (lyceum.technology); spot prices then began
    at 2.25."""
    spark_kw: Price = 0.24
    """Power in kW that the desktop unit draws while it trains."""
    kwh_usd: Price = DEFAULT_KWH_USD
    """Price of a kilowatt-hour."""
    spark_capex_usd: Price = 5000.0
    """Price of the desktop unit."""
    spark_life_years: Amount = 1.5
    """Years over which the unit is written off, in use around the clock."""
    iter_seconds: Amount = 88.0
    """Seconds of one iteration on the desktop unit."""
    campaign_iters: Annotated[int, Field(gt=0, le=10**9)] = 100
    final_node_hours: Amount = 168.0
    """Hours of the final run on a node of 8 H100."""
    wrong_pick_rate: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """Chance that a final run booked without a search is wasted on a bad recipe. This is an
    assumption."""
    wrong_pick_rate_after: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.15
    """Chance that remains after search and long runs. This is an assumption: the published argument
    expects 10 to 20 % in its text, and uses none in its arithmetic."""
    target_scale: Amount = 60.0
    """Cost of an iteration at the target's scale, as a multiple of a proxy's."""
    h100_speedup: Amount = 1.0
    """Speed of an H100 in one iteration, as a multiple of the desktop unit's."""
    preemptions_per_day: Price = 0.0
    """Pre-emptions of rented GPUs per day; 0 for a firm booking."""
    checkpoint_hours: Amount = 1.0
    """Hours between checkpoints, if no launch plan says."""
    restart_hours: Price = 0.25
    """Hours from a pre-emption to the first new step."""
    spark_tflops: Annotated[Amount, Field(ge=1e-6)] = 12_820 * 6 * 354.6e6 / 1e12
    """Training speed of a unit in TFLOP/s. For a GB10 in bf16, 12,820 tokens/s were published for a
    model of 354.6 M parameters; this counts 6 FLOPs per parameter and token."""
    spark_gib: Amount = 128.0
    """Memory of one unit in GiB."""
    spark_scaling: Share = 1.0
    """Share of several units' summed speed that remains when they work together."""
    gpu_utilisation: Share = 0.40
    """Share of the data sheet's dense bf16 speed that a GPU reaches in training. This is an
    assumption: Llama 3 reports 38 to 43 % on H100 (arXiv 2407.21783, table 4)."""
    hours_per_month: Annotated[float, Field(gt=0, le=31 * 24)] = HOURS_PER_YEAR / MONTHS_PER_YEAR
    """Hours per month in which a machine is rented and paid for, or draws power."""

    @property
    def spark_amortized_hourly(self) -> float:
        """``capex / (life × 365.25 × 24)``, USD."""
        return self.spark_capex_usd / (self.spark_life_years * HOURS_PER_YEAR)

    @property
    def spark_life_months(self) -> float:
        return self.spark_life_years * MONTHS_PER_YEAR

    @property
    def spark_electricity_hourly(self) -> float:
        """``kW × USD per kWh``."""
        return self.spark_kw * self.kwh_usd

    @property
    def spark_total_hourly(self) -> float:
        return self.spark_amortized_hourly + self.spark_electricity_hourly

    @property
    def cloud_8xh100_hourly(self) -> float:
        return GPUS_PER_NODE * self.h100_hourly_usd


class _RatesEnvironment(BaseSettings, Rates):
    """Rates from the environment, under their published names: H100_HOURLY_USD and so on."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    kwh_usd: KwhPrice = DEFAULT_KWH_USD


def rate_variables() -> tuple[str, ...]:
    """Return the names of the variables that :func:`read_rates` reads."""
    return (*(name.upper() for name in Rates.model_fields), "AUTORESEARCH_USD_PER_KWH")


def read_rates(overrides: Mapping[str, str] | None = None) -> Rates:
    """Return the published defaults, overridden by the environment, and both by ``overrides``.

    :param overrides: by published name, in any case: ``{"KWH_USD": "0.3"}``.
    :raises SettingsError: naming the variable that is unknown or invalid.
    """
    chosen = {name.lower(): value for name, value in (overrides or {}).items()}
    for name in chosen:
        if name not in Rates.model_fields:
            known = [field.upper() for field in Rates.model_fields]
            raise SettingsError(f"there is no rate {name.upper()!r}{did_you_mean(name, known)}")
    try:
        read = _RatesEnvironment.model_validate(chosen)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        variable = str(problem["loc"][0]).upper()
        if variable == "KWH_USD":
            variable = KWH_NAMES
        said = problem["msg"].removeprefix("Input should be ").split(",")[0]
        raise SettingsError(
            f"{variable} is {str(problem['input'])!r:.60}, and should be {said}"
        ) from error
    return Rates(**read.model_dump())


def _sendable(secret: SecretStr, info: ValidationInfo) -> SecretStr:
    try:
        return SecretStr(sendable(secret.get_secret_value().strip()))
    except ValueError as error:
        raise ValueError(f"AUTORESEARCH_{str(info.field_name).upper()} {error}") from None


Secret: TypeAlias = Annotated[SecretStr, AfterValidator(_sendable)]
"""A secret without surrounding whitespace, such as a copied line end, and valid in an HTTP header.
"""
Address: TypeAlias = Annotated[str, BeforeValidator(str.strip)]
"""A URL, which may hold a password."""


class Environment(BaseSettings):
    """Settings from ``AUTORESEARCH_…`` variables.

    The API key stays a secret. Only the endpoint's client gets it, and no trial ever sees it.
    """

    model_config = SettingsConfigDict(env_prefix="AUTORESEARCH_", extra="ignore")

    llm_base_url: Address | None = None
    """An OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    llm_model: Annotated[str, BeforeValidator(str.strip)] | None = None
    """None means the first model that the endpoint lists."""
    llm_api_key: Secret | None = None
    llm_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Longest silence of the server within one request, in seconds. A large model may need more."""
    llm_deadline_s: Annotated[float, Field(gt=0)] = 120.0
    """Timeout in seconds of all tries of one question together. After it, the sampler makes that
    iteration's proposal."""
    usd_per_kwh: KwhPrice = DEFAULT_KWH_USD
    """Price of electricity, for the cost of a campaign's measured energy."""
    data_dir: Path | None = None
    """Directory in which prepared corpora are cached."""
    history_url: Address | None = None
    """SQLAlchemy URL of a database that holds the history in place of each campaign's own SQLite
    file."""
    memory_reserve_gib: NonNegative = DEFAULT_RESERVE_GIB
    """Memory in GiB that trials must leave free on a GPU that shares the machine's memory."""
    notify_urls: str | None = None
    """Addresses of services that get notices, separated by spaces."""
    serve_token: Secret | None = None
    """Token that a viewer on another machine must present to see the live page."""


_TRACKER_SECRETS = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_URI"),
}


class SystemEnvironment(BaseSettings):
    """Variables of the system and of libraries."""

    model_config = SettingsConfigDict(extra="ignore")

    cuda_visible_devices: str | None = None
    """GPUs that CUDA shows."""
    cuda_device_order: str | None = None
    """Order in which CUDA numbers them."""
    xdg_cache_home: Path | None = None
    xdg_state_home: Path | None = None


def read_environment() -> Environment:
    """Return the environment's settings.

    :raises SettingsError: naming the variable that is invalid.
    """
    learn()
    try:
        return Environment()
    except ValidationError as error:
        said = explain(error).replace("KWH_USD:", f"{KWH_NAMES}:")
        raise SettingsError(f"an environment variable is not usable: {said}") from error


def check_tracker_secrets(tracker: str) -> None:
    """Strip whitespace from the secrets that a tracker's library reads by itself.

    :raises SettingsError: if no request can carry one of them.
    """
    for name in _TRACKER_SECRETS.get(tracker, ()):
        try:
            strip_variable(name)
        except ValueError as error:
            raise SettingsError(f"the variable {name} {error}") from None


def _absolute(folder: Path | None) -> Path | None:
    """Return a folder of the XDG specification, which says to ignore an empty or relative one."""
    return folder if folder is not None and folder.is_absolute() else None


def state_dir() -> Path:
    """Return the directory in which this user's decisions are kept."""
    home = os.path.expanduser("~/.local/state")  # noqa: PTH111 (a user may have no home)
    return (_absolute(SystemEnvironment().xdg_state_home) or Path(home)) / "autoresearch"


def data_dir() -> Path:
    """Return the directory of prepared corpora: AUTORESEARCH_DATA_DIR, or the user's cache folder.

    :raises SettingsError: if nothing is set and the user has no home directory.
    """
    try:
        chosen = read_environment().data_dir
        if chosen is None:
            cache = _absolute(SystemEnvironment().xdg_cache_home) or Path.home() / ".cache"
            chosen = cache / "autoresearch"
        return chosen.expanduser().absolute()
    except RuntimeError as error:  # a container's user may have no entry in the password file
        raise SettingsError(
            "this user has no home directory to keep corpora in; set AUTORESEARCH_DATA_DIR or HOME"
        ) from error
