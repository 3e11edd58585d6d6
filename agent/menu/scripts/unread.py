"""Settings that a script takes by means that are recognized and not read."""

import ast
import re
from collections.abc import Iterable

from agent.menu.scripts.tree import calls, dotted

_LIBRARIES = {
    "hydra": "whose YAML is not read; give its keys as words of the command, optim.lr={lr}",
    "omegaconf": "whose keys are not read; give them as words of the command, lr={lr}",
    "jsonargparse": "whose keys are not read; give them as words of the command, --optim.lr={lr}",
    "lightning": "whose keys are not read; give them as words of the command, --model.lr={lr}",
    "ml_collections": "whose file is not read; give its keys as words of the command, "
    "--config.lr={lr}",
    "yaml": "whose file is not read; have the script take a file of values, and add {values}",
}
"""Settings libraries that the draft cannot read, and what to write by hand instead."""
_SETTING_CALLS = {"lightning": r"LightningCLI", "yaml": r"\w*load"}
"""Calls that take settings, of libraries that scripts also import for something else."""

_PARSER = re.compile(r"\w*Parser|get_\w*parser|parse_\w*args\w*|CLI|ConfigManager")
_READ = {"argparse", "click", "typer", "tyro", "fire", "absl", "dataclasses", "tap"}
"""Modules whose parsers are read."""


def unread_libraries(tree: ast.Module) -> list[str]:
    """Return a clause for each library whose settings the draft does not read."""
    imported = {module.split(".")[0] for module in imports(tree).values()}
    called = {dotted(call.func).rpartition(".")[2] for call in calls(tree)}
    return [
        f"it uses {library}, {advice}"
        for library, advice in _LIBRARIES.items()
        if library in imported
        if library not in _SETTING_CALLS
        or any(re.fullmatch(_SETTING_CALLS[library], name) for name in called)
    ]


def unread_parsers(tree: ast.Module) -> list[str]:
    """Return a clause for each foreign parser by which the script takes settings."""
    origins = imports(tree)
    found: dict[str, str] = {}
    for call in calls(tree):
        root, _, rest = dotted(call.func).partition(".")
        package = origins.get(root, "").split(".")[0]
        name = rest.rpartition(".")[2] or root
        if package and package not in _READ and _PARSER.fullmatch(name):
            found.setdefault(package, name)
    return [
        f"it takes its settings by {name} of {package}, which is not read; give them as words of "
        "the command, --lr={lr}"
        for package, name in found.items()
    ]


def unread_classes(tree: ast.Module, known: Iterable[str]) -> list[str]:
    """Return the imported classes whose fields a parser of dataclasses takes as options.

    :param known: names of the classes that were read.
    """
    origins, read = imports(tree), set(known)
    found = (
        f"{name.id} of {origins[name.id].split('.')[0]}"
        for call in calls(tree)
        if _PARSER.fullmatch(dotted(call.func).rpartition(".")[2])
        for name in ast.walk(call)
        if isinstance(name, ast.Name) and name is not call.func
        if name.id in origins and name.id[:1].isupper() and name.id not in read
    )
    return list(dict.fromkeys(found))


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
