"""Name settings that a script takes by means that are recognized and not read."""

import ast
import re
from collections.abc import Collection

from agent.menu.scripts.signatures import DATACLASS_CLI
from agent.menu.scripts.tree import calls, dotted

_LIBRARIES = {
    "hydra": "optim.lr={lr}",
    "omegaconf": "lr={lr}",
    "jsonargparse": "--optim.lr={lr}",
    "ml_collections": "--config.lr={lr}",
    "yaml": "{values}, the path of a file of values",
}
"""Libraries whose options the draft does not read, each with a word for the command."""
_PARSER = re.compile(r"\w*Parser|get_\w*parser|parse_\w*args\w*|\w*CLI|ConfigManager")
_READ = {"argparse", "click", "typer", "tyro", "fire", "absl", "dataclasses", "tap", *DATACLASS_CLI}
"""Modules and parsers that are read."""


def unread(tree: ast.Module, known: Collection[str] = ()) -> list[str]:
    """Return a clause for each library, foreign parser, and imported class given to a parser, whose
    options the draft does not read.

    :param known: names of the classes that were read.
    """
    origins = imports(tree)
    packages = {name: module.split(".")[0] for name, module in origins.items()}
    found = [name for name in packages.values() if name in _LIBRARIES and name != "yaml"]
    for call in calls(tree):
        root, _, rest = dotted(call.func).partition(".")
        name = rest.rpartition(".")[2] or root
        package = packages.get(root, "")
        if package == "yaml" and name.endswith("load"):
            found.append("yaml")
        if not _PARSER.fullmatch(name):
            continue
        if package and not {package, name} & {*_READ, *_LIBRARIES}:
            found.append(f"{name} of {package}")
        given = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - {root}
        classes = sorted(one for one in given if one in origins and one[:1].isupper())
        found += [f"{one} of {origins[one]}" for one in classes if one not in known]
    return [
        f"the options that it takes by {one} are not read: add those you want to the command, "
        f"such as {_LIBRARIES.get(one, '--lr={lr}')}, and a knob for each"
        for one in dict.fromkeys(found)
    ]


def imports(tree: ast.Module) -> dict[str, str]:
    """Return the module that each imported name comes from, relative ones with their dots."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origins |= {(one.asname or one.name).split(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            origins |= {one.asname or one.name: module for one in node.names}
    return origins
