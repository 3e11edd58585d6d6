"""Find the function that a script can be started by in a forked process, and what to preload.

A forked process has the script's imports loaded, so that a short trial does not pay for them. The
imports run outside the sandbox, so only well-known packages are drafted as ``preload``, and only
those that can be forked after their import: JAX and TensorFlow start threads.
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_PRELOADED = 20
_FORKABLE = frozenset(
    "datasets einops lightgbm numpy pandas safetensors scipy sklearn statsmodels tiktoken "
    "tokenizers torch torchvision transformers xgboost".split()
)


def entry_function(tree: ast.Module) -> str | None:
    """Return the function without required parameters that a script calls under its guard
    ``if __name__ == "__main__":``, and nothing else."""
    tests = {"__name__ == '__main__'", "'__main__' == __name__"}
    ifs = [node for node in tree.body if isinstance(node, ast.If)]
    guards = [node for node in ifs if ast.unparse(node.test) in tests]
    if len(guards) != 1 or len(guards[0].body) != 1 or guards[0].orelse:
        return None
    match guards[0].body[0]:
        case ast.Expr(ast.Call(ast.Name(name), args=[], keywords=[])):
            return name if any(_defines(node, name) for node in tree.body) else None
    return None


def _defines(node: ast.stmt, name: str) -> bool:
    """Return whether this defines the function so that it can be called without arguments; a
    decorator such as click's reads them from the command line."""
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    required = len(node.args.posonlyargs + node.args.args) - len(node.args.defaults)
    return bool(node.decorator_list) or not (required or None in node.args.kw_defaults)


def preloadable(tree: ast.Module) -> list[str]:
    """Return the installed, well-known modules that a script imports at its top level."""
    # find_spec of a submodule would import its package, so look for the package alone
    packages = {name: name.split(".")[0] for name in _imported(tree)}
    found = [
        name
        for name, package in packages.items()
        if package in _FORKABLE and importlib.util.find_spec(package) is not None
    ]
    return found[:MOST_PRELOADED]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def python_is_ours() -> bool:
    """Return whether the command ``python`` is the Python that autoresearch runs on, or missing."""
    found = shutil.which("python")
    return found is None or Path(found).absolute().parent == Path(sys.executable).absolute().parent
