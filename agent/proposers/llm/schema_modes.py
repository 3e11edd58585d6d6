"""Hold how one model at one endpoint must be asked, which its refusals tell."""

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agent.proposers.llm.failures import ROLES, RejectedError
from agent.proposers.llm.wire import Json
from autoresearch.files import replace_file


class SchemaMode(StrEnum):
    """Place of the schema in the request, in the order in which they are tried."""

    JSON_SCHEMA = "json_schema"
    """OpenAI's own ``response_format``."""
    JSON_OBJECT_SCHEMA = "json_object.schema"
    """llama-cpp-python and some hosted services: a schema beside ``json_object``."""
    JSON_OBJECT = "json_object"
    """Any JSON object."""
    NONE = "none"
    """Only the prompt asks for JSON."""

    def request(self, schema: Json) -> Json:
        """Return the fields that this mode adds to a chat request."""
        # Not "strict": hosted servers then require every property, and a proposal changes only some
        # knobs.
        forms: dict[SchemaMode, Json] = {
            SchemaMode.JSON_SCHEMA: {"json_schema": {"name": "reply", "schema": schema}},
            SchemaMode.JSON_OBJECT_SCHEMA: {"schema": schema},
            SchemaMode.JSON_OBJECT: {},
        }
        if self not in forms:
            return {}
        return {"response_format": {"type": self.value.removesuffix(".schema"), **forms[self]}}


QUIET: Json = {
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    "reasoning_effort": "none",
}
"""Request fields that turn thinking off, on one server or another."""


class Manner(BaseModel):
    """How to ask one model at one endpoint."""

    mode: SchemaMode | None = None
    """None: not known yet."""
    merges_system: bool = False
    """Whether it refuses the system role, so that the system text begins the first user message."""
    reply_tokens: Annotated[int, Field(gt=0, le=1 << 20)] | None = None
    """Longest reply to ask for, if the usual length was too short."""
    is_quiet: bool = False
    """Whether to ask with :data:`QUIET`."""
    tokens_named: str = "max_tokens"
    """Field that limits the reply's tokens."""
    refused: set[str] = set()
    """Fields that the model refuses."""

    def adapts(self, error: RejectedError) -> bool:
        """Return whether a refused question can be asked in another form, which is used from now
        on."""
        quiet = set(QUIET) - self.refused if self.is_quiet else set()
        if error.param == "max_tokens" == self.tokens_named:
            self.tokens_named = "max_completion_tokens"
        elif error.param == "temperature" and "temperature" not in self.refused:
            self.refused.add("temperature")
        elif not self.merges_system and ROLES.search(error.said):
            self.merges_system = True
        elif quiet:
            self.refused |= {name for name in quiet if name in error.said} or quiet
        else:
            return False
        return True


_MANNERS: TypeAdapter[dict[str, Manner]] = TypeAdapter(dict[str, Manner])


def recall(path: Path | None) -> dict[str, Manner]:
    """Read stored manners by endpoint and model. A missing or damaged file costs a few requests."""
    with contextlib.suppress(OSError, ValidationError):
        return _MANNERS.validate_json(path.read_bytes()) if path is not None else {}
    return {}


def remember(path: Path | None, key: str, manner: Manner) -> None:
    """Add a manner to the file, if there is one; a file that cannot be written is left alone."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        whole = _MANNERS.dump_json(recall(path) | {key: manner}, indent=2, exclude_defaults=True)
        replace_file(path, whole.decode() + "\n")
