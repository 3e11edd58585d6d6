"""Find how a script is started: in which folder, as what, and by which function.

Its folder follows from its imports and from the paths that it names. A function can be called in a
forked process, which has the script's imports loaded, so that a short trial does not pay for them.
The imports run outside the sandbox, so only well-known packages are drafted as ``preload``, and
only those that can be forked after their import: JAX and TensorFlow start threads.
"""

import ast
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.menu.scripts.reading import Script, imported_names, modules_beside
from agent.menu.scripts.tree import last_name
from trainer.command.open_paths import holds_home

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
"""Most parent folders in which a script's own modules and files are searched."""
_ABOVE = re.compile(r"(\.\./){1,3}\w[\w-]*([./]\w[\w-]*){0,20}/?")
_BELOW = re.compile(r"(\./)?\w[\w.-]*(/[\w.-]+)*/?")
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


def start_of(script: Script) -> Start:
    """Return where to start a script, by its imports and by the paths that it names.

    Its own folder is preferred. A module above is reached by ``python -m``, and by a search path
    if the script is edited, since a module has no edited copy. A path that exists as seen from a
    folder above, and not from the script's own, is named as seen from there.
    """
    path = script.path.resolve()
    folder, imported = path.parent, imported_names(script.tree)
    tops = list(_packages(script.tree, folder))
    root, module = _module_of(path, imported, tops)
    if any(one.startswith(".") for one in imported):
        is_edited = script.means == "edit"
        return Start(folder, path.name) if is_edited else Start(root, path.name, module)
    modules = [
        f"../{one}" if (root / one).is_dir() else f"../{one}.py"
        for one in dict.fromkeys(tops)
        if _is_module(root, one) and not _is_module(folder, one)
    ]
    if root in (folder, folder.parent) and (named := _named_above(script, root)):
        reads = (*named, *(one for one in modules if one != f"../{folder.name}"))
        return Start(folder, path.name, "", reads, ".." if modules else "")
    if module and script.means != "edit":
        return Start(root, path.name, module)
    top = root if modules else _root_named(script) or folder
    return Start(top, path.relative_to(top).as_posix(), search_path="." if modules else "")


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


def _module_of(path: Path, imported: Sequence[str], tops: Sequence[str]) -> tuple[Path, str]:
    """Return the folder in which a script is a module, and its name there; no name if it neither
    is in a package nor imports modules from above its folder."""
    folder = path.parent
    levels = max((len(one) - len(one.lstrip(".")) for one in imported), default=0)
    above = [*path.parents][: levels + 1]
    while (above[-1] / "__init__.py").is_file() and above[-1] != above[-1].parent:
        above.append(above[-1].parent)
    for place in [*path.parents][1:MOST_ABOVE]:
        if any(_is_module(place, top) and not _is_module(folder, top) for top in tops):
            above = max(above, [*path.parents][: path.parents[:].index(place) + 1], key=len)
            break
    root = above[-1]
    parts = path.relative_to(root).with_suffix("").parts
    is_module = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return root, ".".join(parts).removesuffix(".__main__") if is_module else ""


def _named_above(script: Script, root: Path) -> tuple[str, ...]:
    """Return the paths such as ``../data`` that a script names as seen from its own folder."""
    folder = script.path.resolve().parent
    above = modules_beside(root / script.path.name, script.tree).values() if root != folder else ()
    texts = {
        text.rstrip("/")
        for tree in (*_trees(script), *above)
        for text in _texts(tree)
        if _ABOVE.fullmatch(text)
    }
    return tuple(
        one
        for one in sorted(texts)
        if (folder / one).exists() and not (folder.parent / one).exists()
    )


def _is_module(folder: Path, name: str) -> bool:
    package = folder / name
    return package.with_suffix(".py").is_file() or any(package.glob("*.py"))


def _root_named(script: Script) -> Path | None:
    """Return the nearest folder above a script's own that holds files which it names: as seen from
    there, or from its own place by ``__file__``."""
    path = script.path.resolve()
    trees = _trees(script)
    named = {one for tree in trees for one in _paths_named(tree)}
    words = {one for tree in trees for one in _texts(tree) if _BELOW.fullmatch(one)}
    climbed = max((levels_climbed(tree) for tree in trees), default=0)
    for levels, place in enumerate([*path.parents][1:MOST_ABOVE], start=2):
        if holds_home(place):
            return None
        for one in words if levels == climbed else named:
            found, own = place / one, path.parent / one
            if found.exists() and not own.exists() and not path.is_relative_to(found):
                return place
    return None


def _trees(script: Script) -> list[ast.Module]:
    return [script.tree, *modules_beside(script.path.resolve(), script.tree).values()]


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _paths_named(tree: ast.Module) -> Iterator[str]:
    """Yield texts that are paths by their form, by the call that they are given to, or by the name
    of their option or variable."""
    for text in _texts(tree):
        if _BELOW.fullmatch(text) and ("/" in text or Path(text).suffix):
            yield text
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, args=[ast.Constant(value=str(text)), *_], keywords=keys):
                if last_name(func) in _OPENS:
                    yield text
                given = [key.value for key in keys if key.arg == "default"]
                if _NAMES_A_PATH.search(text):
                    yield from _words(given)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _words([value]) if _NAMES_A_PATH.search(name) else ()
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from _words([value]) if _NAMES_A_PATH.search(name) else ()


def _words(nodes: Iterable[ast.expr]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if _BELOW.fullmatch(text):
                yield text


def levels_climbed(tree: ast.Module) -> int:
    """Return how many folders a script goes up from ``__file__``, its own folder being one."""
    known: dict[str, int] = {"__file__": 0}
    most = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (levels := _levels(node, known)) is not None:
            most = max(most, levels)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                levels = _levels(value, known)
                if levels is not None:
                    known[name] = levels
    return most


def _levels(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """Return the folders above the script that an expression names; None if it names another
    path."""
    more = 0
    match node:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=under, attr="parent"):
            more = 1
        case ast.Subscript(
            value=ast.Attribute(value=under, attr="parents"), slice=ast.Constant(value=int(number))
        ):
            more = number + 1
        case ast.BinOp(left=under, op=ast.Div(), right=right):
            more = _ups([right])
        case ast.Call(func=ast.Attribute(value=under, attr="resolve" | "absolute"), args=[]):
            pass
        case ast.Call(func=func, args=[under, *rest]) if last_name(func) in _FOLLOWED:
            more = _ups(rest) + (last_name(func) == "dirname")
        case _:
            return None
    levels = _levels(under, known)
    return None if levels is None else levels + more


_FOLLOWED = {"dirname", "abspath", "realpath", "normpath", "join", "Path", "str", "fspath"}


def _ups(nodes: Iterable[ast.expr]) -> int:
    """Return how many of the parts of a path are ``..``."""
    texts = (one.value for one in nodes if isinstance(one, ast.Constant))
    return sum(text.split("/").count("..") for text in texts if isinstance(text, str))
