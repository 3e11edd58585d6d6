"""The environment: what ``AUTORESEARCH_…`` variables and a few others say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent.settings.rates import DEFAULT_KWH_USD, KWH_NAMES, KwhPrice
from autoresearch.errors import SettingsError
from autoresearch.redaction import learn, sendable, strip_variable
from autoresearch.values import NonNegative, explain
from trainer.spec import DEFAULT_RESERVE_GIB


def _sendable(secret: SecretStr, info: ValidationInfo) -> SecretStr:
    try:
        return SecretStr(sendable(secret.get_secret_value().strip()))
    except ValueError as error:
        raise ValueError(f"AUTORESEARCH_{str(info.field_name).upper()} {error}") from None


Secret: TypeAlias = Annotated[SecretStr, AfterValidator(_sendable)]
"""Without the line end of a file that it was copied from, and fit for a header."""
Address: TypeAlias = Annotated[str, BeforeValidator(str.strip)]
"""A URL, which may hold a password."""


class Environment(BaseSettings):
    """What the environment says, as ``AUTORESEARCH_…`` variables.

    The API key stays a secret: it is handed to the endpoint's client and to nothing else, and no
    trial ever sees it.
    """

    model_config = SettingsConfigDict(env_prefix="AUTORESEARCH_", extra="ignore")

    llm_base_url: Address | None = None
    """An OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    llm_model: str | None = None
    """None: the first model the endpoint lists."""
    llm_api_key: Secret | None = None
    llm_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """For one request, to the last byte of its reply; a large model may need more."""
    llm_deadline_s: Annotated[float, Field(gt=0)] = 120.0
    """For all tries of one question together; then the sampler makes that iteration's proposal."""
    usd_per_kwh: KwhPrice = DEFAULT_KWH_USD
    """For the cost of a campaign's measured energy."""
    data_dir: Path | None = None
    """Where prepared corpora are cached."""
    history_url: Address | None = None
    """A SQLAlchemy URL to keep the history in instead of each campaign's own SQLite file."""
    memory_reserve_gib: NonNegative = DEFAULT_RESERVE_GIB
    """Kept from trials on a GPU that shares the machine's memory."""
    serve_token: Secret | None = None
    """What whoever looks at the live page from another machine has to show."""


_TRACKER_SECRETS = {
    "wandb": ("WANDB_API_KEY",),
    "mlflow": ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_URI"),
}


class CudaEnvironment(BaseSettings):
    """Which GPUs CUDA was told to show, and in which order it numbers them."""

    model_config = SettingsConfigDict(extra="ignore")

    cuda_visible_devices: str | None = None
    cuda_device_order: str | None = None


class CertificateEnvironment(BaseSettings):
    """The certificates that TLS trusts in place of the system's."""

    model_config = SettingsConfigDict(extra="ignore")

    ssl_cert_file: str | None = None
    ssl_cert_dir: str | None = None


class _CacheHome(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")

    xdg_cache_home: Path | None = None


def read_environment() -> Environment:
    """The environment's settings.

    :raises SettingsError: naming the variable that makes no sense.
    """
    learn()
    try:
        return Environment()
    except ValidationError as error:
        said = explain(error).replace("KWH_USD:", f"{KWH_NAMES}:")
        raise SettingsError(f"an environment variable is not usable: {said}") from error


def check_tracker_secrets(tracker: str) -> None:
    """Strip the secrets that a tracker's library reads by itself.

    :raises SettingsError: on one that no request can carry.
    """
    for name in _TRACKER_SECRETS.get(tracker, ()):
        try:
            strip_variable(name)
        except ValueError as error:
            raise SettingsError(f"the variable {name} {error}") from None


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
