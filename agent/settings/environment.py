"""Settings from the environment: ``AUTORESEARCH_…`` variables and a few others. The prices of
machines are in :mod:`funnel.cost.rates`."""

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from autoresearch.errors import SettingsError
from autoresearch.safe_text import learn, sendable, strip_variable
from autoresearch.values import NonNegative, PositiveInt, explain
from trainer.schema import DEFAULT_RESERVE_GIB
from trajectory.spending import DEFAULT_KWH_USD, KWH_NAMES, KwhPrice


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
    proposer_command: str | None = None
    """Command that answers in place of an endpoint, such as ``claude -p``."""
    proposer_calls: PositiveInt = 100
    """Most calls of the command in one campaign."""
    proposer_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    """Money after which the command is called no more in one campaign, if it reports its cost."""
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


TRACKER_SECRETS = {
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


def read_environment(**chosen: Any) -> Environment:
    """Return the environment's settings.

    :param chosen: settings from the command line, which come first; None: not given.
    :raises SettingsError: naming the variable that is invalid.
    """
    learn()
    try:
        return Environment(**{name: value for name, value in chosen.items() if value is not None})
    except ValidationError as error:
        said = explain(error).replace("KWH_USD:", f"{KWH_NAMES}:")
        raise SettingsError(f"an environment variable is not usable: {said}") from error


def check_tracker_secrets(tracker: str) -> None:
    """Strip whitespace from the secrets that a tracker's library reads by itself.

    :raises SettingsError: if no request can carry one of them.
    """
    for name in TRACKER_SECRETS.get(tracker, ()):
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
