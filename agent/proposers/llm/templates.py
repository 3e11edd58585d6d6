"""Render the prompt's templates, which are shipped in ``proposer_prompts``."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from autoresearch.words import scalar_text


def rendered(name: str, variables: Mapping[str, Any]) -> str:
    """Return a template's text with these variables, ending in one line end."""
    return _environment().get_template(name).render(variables).strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    """Return the environment of all templates; an undefined variable is an error."""
    folder = resources.files("proposer_prompts")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["value"] = scalar_text
    return environment
