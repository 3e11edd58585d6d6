"""Load and render the prompt's templates: the shipped ones, or a user's own of the same name.

They are rendered in the process that holds the endpoint's key, and may come from anyone. So
rendering uses Jinja's immutable sandbox, and templates get only JSON data: text, numbers, lists and
dictionaries. The sandbox does not bound time and memory: nested loops may run for long, and a
padding filter may make a text arbitrarily large.
"""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.proposers.base import ProposerError
from autoresearch.errors import SettingsError
from autoresearch.files import read_given
from autoresearch.plain_text import plain
from autoresearch.words import scalar_text

MOST_BYTES = 1 << 20
"""Longest template, and longest text made by repetition in one."""
_MOST_BASE, _MOST_EXPONENT = 10**6, 64
_SENTENCE_CHARACTERS = 300


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})
    """Operators that are checked below at rendering, instead of folded at compilation."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Prefer a dictionary's items to its methods: ``reference.values`` is an item."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        """Compute as Python does, but refuse what would never end or fill the memory."""
        if operator == "**" and not (abs(left) <= _MOST_BASE and abs(right) <= _MOST_EXPONENT):
            raise jinja2.TemplateRuntimeError(
                f"a power of more than {_MOST_BASE:,} or to more than {_MOST_EXPONENT}"
            )
        for text, times in ((left, right), (right, left)):
            if hasattr(text, "__len__") and len(text) * times > MOST_BYTES:
                raise jinja2.TemplateRuntimeError(f"a text repeated to over {MOST_BYTES:,}")
        return super().call_binop(context, operator, left, right)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    name: str
    _compiled: jinja2.Template

    def render(self, variables: Mapping[str, Any]) -> str:
        """Render the text, ending in one line end.

        :param variables: only JSON data.
        :raises ProposerError: for any error of the template.
        """
        try:
            return self._compiled.render(json.loads(json.dumps(variables))).strip() + "\n"
        except Exception as error:  # a template can raise whatever Python can
            raise ProposerError(
                f"the prompt template {self.name} cannot be rendered ({_said(error)}); fix it"
            ) from error


def load_templates(
    directory: Path | None, variables: Mapping[str, Set[str]]
) -> dict[str, Template]:
    """Load every template by its file's name.

    :param directory: its files replace shipped ones of the same name.
    :param variables: by template, the variables it may use.
    :raises SettingsError: on a template that cannot be read, or uses an unknown variable.
    """
    environment = _Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["value"] = scalar_text
    if directory is not None and not directory.is_dir():
        raise SettingsError(f"{directory} is not a folder of templates; set --prompts to one")
    return {name: _load(environment, directory, name, known) for name, known in variables.items()}


def _load(
    environment: jinja2.Environment, directory: Path | None, name: str, known: Set[str]
) -> Template:
    own = directory / name if directory is not None else None
    shipped = resources.files("proposer_prompts").joinpath(name)
    is_own = own is not None and own.exists()
    source = own if is_own else shipped
    try:
        raw = read_given(own, MOST_BYTES) if own is not None and is_own else shipped.read_bytes()
        text = raw.decode("utf-8")
        unknown = jinja2.meta.find_undeclared_variables(environment.parse(text)) - known
        compiled = environment.from_string(text)
    except Exception as error:  # Jinja compiles to Python, which refuses some in turn
        raise SettingsError(
            f"the prompt template {source} cannot be used ({_said(error)}); fix it"
        ) from error
    if unknown:
        raise SettingsError(
            f"the prompt template {source} names {', '.join(sorted(unknown))}, which does "
            f"not exist; use {', '.join(sorted(known))}"
        )
    return Template(name, compiled)


def _said(error: Exception) -> str:
    """Return an error as a clause; Python's errors need their name for that."""
    said = str(error.strerror) if isinstance(error, OSError) and error.strerror else str(error)
    if not isinstance(error, jinja2.TemplateError | OSError | UnicodeDecodeError):
        said = f"{type(error).__name__}: {said}"
    return plain(said).strip()[:_SENTENCE_CHARACTERS]
