"""Starts a script with stand-ins for what it imports, until it asks what it was told:
``python bench/script_witness.py SCRIPT OUT`` writes the options that the library itself then has.

A process of its own, without any of the product: what it says is checked against the product.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import dataclasses
import enum
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

REAL = {"click", "typer", "typing_extensions", "rich", "shellingham", "annotated_doc", "colorama"}


class Anything:
    """Answers whatever it is asked, and lets functions that it decorates be."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __call__(self, *args: Any, **named: Any) -> Any:
        alone = len(args) == 1 and not named
        return args[0] if alone and isinstance(args[0], types.FunctionType | type) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (Base,)

    def __getitem__(self, key: object) -> Anything:
        return Anything()

    def __setitem__(self, key: object, value: object) -> None: ...

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __bool__(self) -> bool:
        return False

    def __index__(self) -> int:
        return 1

    def _self(self, *_: object) -> Anything:
        return self

    def _no(self, _: object) -> bool:
        return False

    __int__ = __index__
    __len__ = lambda self: 0  # noqa: E731
    __float__ = lambda self: 1.0  # noqa: E731
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _self
    __rtruediv__ = __floordiv__ = __pow__ = __mod__ = __neg__ = __or__ = __ror__ = __and__ = _self
    __matmul__ = _self
    __lt__ = __gt__ = __le__ = __ge__ = _no


class Base:
    """What a class of the script stands on where its base is a stand-in."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __init_subclass__(cls, **_: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StandIn(types.ModuleType):
    """A module of anything."""

    __path__ = ()  # type: ignore[assignment]
    __version__ = "9.9.9"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cli if name in {"cli", "HfArgumentParser"} else Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module that is neither Python's own nor beside the script."""

    def __init__(self, script: Path) -> None:
        self._beside = {path.stem for path in script.parent.iterdir()}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.split(".", maxsplit=1)[0]
        if top in sys.stdlib_module_names or top in self._beside | REAL:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None: ...


class Said(BaseException):
    """The script has asked; nothing of it is to run any further."""


def say(options: list[dict[str, Any]]) -> NoReturn:
    Path(sys.argv[-1] if OUT is None else OUT).write_text(json.dumps(options), "utf-8")
    os._exit(0)


OUT: str | None = None


def plain(value: object) -> object:
    """A value as JSON has it; what it has not, as a text in brackets."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if type(value).__name__ == "Sentinel":  # click's word for none
        return None
    return (
        [plain(one) for one in value]
        if isinstance(value, list | tuple)
        else f"<{type(value).__name__}>"
    )


PARSERS: list[argparse.ArgumentParser] = []
PARSER_INIT = argparse.ArgumentParser.__init__


def parser_init(self: argparse.ArgumentParser, *args: Any, **named: Any) -> None:
    """A parser as ever, and remembered."""
    PARSERS.append(self)
    PARSER_INIT(self, *args, **named)


def parse_known_args(self: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
    """What all argparse parsers of the script have when the first is asked."""
    say(
        [
            {
                "name": action.dest,
                "flags": list(action.option_strings),
                "default": plain(parser._defaults.get(action.dest, action.default)),
                "choices": None if action.choices is None else plain(list(action.choices)),
                "kind": type(action).__name__,
                "several": action.nargs not in {None, "?", 0},
            }
            for parser in PARSERS
            for action in parser._actions
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        ]
    )


def cli(kind: Any = None, *_: object, **__: object) -> Any:
    """What tyro, HfArgumentParser and their like are handed."""
    kinds = kind if isinstance(kind, list | tuple) else [kind]
    found = []
    for one in kinds:
        if not dataclasses.is_dataclass(one):
            return Anything()
        for field in dataclasses.fields(one):
            default = None if field.default is dataclasses.MISSING else field.default
            found.append({"name": field.name, "default": plain(default), "kind": "field"})
    say(found)


def choices_of(parameter: Any) -> list[object]:
    """Of click's parameter, or of typer's own kind of them."""
    kind = getattr(parameter, "type", None)
    if kind is not None:
        return list(getattr(kind, "choices", []))
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [one.value for one in annotation]
    return list(typing.get_args(annotation)) if "Literal" in repr(annotation) else []


def command_main(self: Any, *_: object, **__: object) -> NoReturn:
    """What a click command has when it is called."""
    say(
        [
            {
                "name": one.name,
                "flags": [*one.opts, *one.secondary_opts],
                "default": plain(one.default),
                "choices": plain(choices_of(one)) or None,
                "kind": type(one).__name__,
                "several": one.nargs != 1 or getattr(one, "multiple", False),
            }
            for one in self.params
            if one.name not in {"help", "install_completion", "show_completion"}
        ]
    )


def exec_(source: Any, *given: Any) -> None:
    """A script that collects the globals which a configurator may set, as nanoGPT does."""
    space = given[0] if given else sys._getframe(1).f_globals
    if "config_keys" in space and space.get("__name__") == "__main__":
        say(
            [
                {"name": k, "default": plain(space[k]), "kind": "global"}
                for k in space["config_keys"]
            ]
        )
    REAL_EXEC(source, space, *given[1:])


REAL_EXEC = builtins.exec


def main(script: Path) -> None:
    sys.meta_path.insert(0, Finder(script))
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script)]
    os.chdir(script.parent)
    argparse.ArgumentParser.__init__ = parser_init  # type: ignore[method-assign]
    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]
    builtins.exec = exec_  # type: ignore[assignment]
    with contextlib.suppress(ImportError):
        import click

        click.Command.main = command_main  # type: ignore[method-assign]
    with contextlib.suppress(ImportError):
        import typer.core

        typer.core.TyperCommand.main = command_main  # type: ignore[method-assign]
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    OUT = sys.argv[2]
    main(Path(sys.argv[1]))
