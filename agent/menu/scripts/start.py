"""Find how a script is started: in which folder, and as what.

Its folder follows from its imports and from the paths that it names. It can run in a forked
process, which has the script's imports loaded, so that a short trial does not pay for them. The
imports run outside the sandbox, so only well-known packages are drafted as ``preload``, and
only those that can be forked after their import: JAX and TensorFlow start threads.
"""

import ast
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, takewhile
from pathlib import Path

from agent.menu.scripts.reading import imported_names, modules_beside
from agent.menu.scripts.tree import last_name
from trainer.command.open_paths import holds_home

MOST_PRELOADED = 20
WHOLE_SCRIPT = "__main__"
"""The name of a script that runs as a program."""
_FORKABLE = frozenset(
    "datasets einops lightgbm numpy pandas safetensors scipy sklearn statsmodels tiktoken "
    "tokenizers torch torchvision transformers xgboost".split()
)


def preloadable(tree: ast.Module) -> list[str]:
    """Return the installed, well-known modules that a script imports at its top level."""
    top: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    # find_spec of a submodule would import its package, so look for the package alone
    packages = {name: name.split(".")[0] for name in imported_names(ast.Module(top, []))}
    found = [
        name
        for name, package in packages.items()
        if package in _FORKABLE and importlib.util.find_spec(package) is not None
    ]
    return found[:MOST_PRELOADED]


def python_is_ours() -> bool:
    """Return whether the command ``python`` is the Python that autoresearch runs on, or missing."""
    found = shutil.which("python")
    return found is None or Path(found).absolute().parent == Path(sys.executable).absolute().parent


# --- the folder to start in ------------------------------------------------------------------

MOST_ABOVE = 4
"""Most folders in which a script's own modules and files are searched, its own the first."""
_PATH = re.compile(r"(\.\./){0,3}(\./)?\w[\w.-]{0,80}(/[\w.-]{1,80}){0,20}/?")
_CLIMBS = re.compile(r"\.parent\b|\bdirname\(|\.\.(?=['/])|\.parents\[(\d)\]")
"""Ways to name the folder above a path, in code."""
_NAMES_A_PATH = re.compile(r"(?i)data|dir|path|file|folder|root|corpus|input")
_OPENS = {
    *("Path", "join", "open", "listdir", "scandir", "glob", "walk", "exists", "isfile", "isdir"),
    *("read_csv", "read_parquet", "load", "loadtxt", "ImageFolder"),
}


@dataclass(frozen=True, slots=True)
class Start:
    """A place to start a script in, and as what."""

    folder: Path
    script: str
    """The script's path below the folder."""
    module: str = ""
    """Module name for ``python -m`` in the folder; empty if the script is started as a file."""
    reads: tuple[str, ...] = ()
    """Paths outside the folder that the script needs, relative to it."""
    search_path: str = ""
    """Folder in which the script looks for modules besides its own, relative to the folder."""


def start_of(path: Path, tree: ast.Module, *, edited: bool = False) -> Start:
    """Return where to start a script: the nearest folder, from its own upwards, with most of the
    paths that it names and of the modules that it imports.

    A module above is reached by ``python -m``, and by a search path if the script is edited, since
    a module has no edited copy.
    """
    path = path.resolve()
    own, can_be_module = path.parent, not edited
    dots = [len(one) - len(one.lstrip(".")) for one in imported_names(tree)]
    if levels := max(dots, default=0):
        root = path.parents[levels]
        while (root / "__init__.py").is_file() and root != root.parent:
            root = root.parent
        is_module = can_be_module and _module(path, root)
        return Start(root, path.name, _module(path, root)) if is_module else Start(own, path.name)
    tops = {one for one in _packages(tree, own) if not _is_module(own, one)}
    trees = [tree, *modules_beside(path, tree).values()]
    words = {one for tree in trees for one in _texts(tree) if _PATH.fullmatch(one)}
    named = {one for tree in trees for one in _paths_named(tree)}
    texts = {one for one in words if "/" in one or Path(one).suffix or one in named}
    climbed = {levels for tree in trees for levels in _levels_climbed(tree)}

    def found(place: Path) -> int:
        wanted = words if path.parents.index(place) + 1 in climbed else texts
        here = [place / one for one in wanted if not path.is_relative_to(place / one)]
        return sum(_is_module(place, one) for one in tops) + sum(one.exists() for one in here)

    above = takewhile(lambda place: not holds_home(place), path.parents[1:MOST_ABOVE])
    folder = max([own, *above], key=found)
    for place in (path.parents[levels - 1] for levels in climbed if 1 < levels <= MOST_ABOVE):
        # It goes up and down again by the name of a folder that the script lies in.
        is_named = any(path.is_relative_to(place / one) for one in words if one.strip("./"))
        folder = place if is_named and folder.is_relative_to(place) else folder
    is_imported = any(_is_module(folder, one) for one in tops)
    if is_imported and can_be_module and (module := _module(path, folder)):
        return Start(folder, path.name, module)
    outside = (one for one in texts if one.startswith("../") and (folder / one).exists())
    below = path.relative_to(folder).as_posix()
    search = "." if is_imported else ""
    if own.name in tops and folder == own:  # it reads files by their places in its own package
        search = ".."
    return Start(folder, below, "", tuple(sorted(outside)), search)


def _texts(*nodes: ast.AST) -> Iterator[str]:
    """Yield the texts in code."""
    for node in chain.from_iterable(map(ast.walk, nodes)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _paths_named(tree: ast.Module) -> Iterator[str]:
    """Yield texts that are paths by the call that they are given to, or by the name of their
    variable or option."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=[first, *_]) if last_name(func) in _OPENS:
                yield from _texts(first)
            case ast.Call(args=[ast.Constant(value=str(name)), *_], keywords=keys):
                if _NAMES_A_PATH.search(name):
                    yield from _texts(*(key.value for key in keys if key.arg == "default"))
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ) if _NAMES_A_PATH.search(name):
                yield from _texts(value)


def _levels_climbed(tree: ast.Module) -> set[int]:
    """Return how many folders a script goes up from ``__file__`` to reach files; 1 is its own."""
    known, found = {"__file__": 0}, set[int]()
    for node in ast.walk(tree):
        code = node.value if isinstance(node, ast.Assign) else node
        if not isinstance(code, ast.expr):
            continue
        names = (one.id for one in ast.walk(code) if isinstance(one, ast.Name))
        if bases := [known[name] for name in names if name in known]:
            ups = _CLIMBS.findall(ast.unparse(code))
            levels = max(bases) + sum(int(one or 0) + 1 for one in ups)
            found.add(levels)
            targets = node.targets if isinstance(node, ast.Assign) else []
            known |= {one.id: levels for one in targets if isinstance(one, ast.Name)}
    return found


def _packages(tree: ast.Module, folder: Path) -> Iterator[str]:
    """Yield the packages that a script imports; one of its own folder's name only if a module in
    the folder is imported, since a folder may be named after the library that it is about."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for top, *below in (name.split(".") for name in names):
            if top != folder.name or (below and _is_module(folder, below[0])):
                yield top


def _is_module(folder: Path, name: str) -> bool:
    package = folder / name
    return package.with_suffix(".py").is_file() or any(package.glob("*.py"))


def _module(path: Path, root: Path) -> str:
    """Return a script's name as a module in a folder; empty if it cannot be one."""
    parts = path.relative_to(root).with_suffix("").parts
    is_module = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return ".".join(parts).removesuffix(".__main__") if is_module else ""
