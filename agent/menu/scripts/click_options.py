"""Find the options of a script that uses click."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.menu.scripts.option import Option, identifier, passed, switched, typed_choices
from agent.menu.scripts.tree import Names, dotted, functions, keywords, last_name

_WORDS = {"INT": "int", "FLOAT": "float", "STRING": "str", "BOOL": "bool"}
_RANGES = {"IntRange": "int", "FloatRange": "float"}


def click_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``@click.option`` of the script's commands."""
    groups = {
        one.name
        for one in functions(tree)
        if any(last_name(_called(each)) == "group" for each in one.decorator_list)
    }
    for function in functions(tree):
        command = _command(function, groups, names)
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and last_name(decorator.func) in {
                "option",
                "argument",
            }:
                texts = [text for one in decorator.args if (text := names.text(one))]
                is_click = "click" in dotted(decorator.func) or any("-" in one for one in texts)
                if texts and is_click:
                    option = _Decorator(texts, keywords(decorator), names).option(decorator.lineno)
                    yield replace(option, command=command)


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _command(
    function: ast.FunctionDef | ast.AsyncFunctionDef, groups: set[str], names: Names
) -> str:
    """Return the subcommand name of a function in a group; empty outside groups."""
    for one in function.decorator_list:
        called = _called(one)
        if isinstance(called, ast.Attribute) and called.attr in {"command", "group"}:
            given = names.text(one.args[0]) if isinstance(one, ast.Call) and one.args else ""
            if dotted(called.value) in groups:
                return given or function.name.replace("_", "-")
    return ""


@dataclass(frozen=True, slots=True)
class _Decorator:
    """One ``@click.option(…)`` or ``@click.argument(…)``."""

    texts: list[str]
    said: Mapping[str, ast.expr]
    names: Names

    def option(self, line: int) -> Option:
        said, names = self.said, self.names
        kind, choices, low, high = self._type()
        flags = [text for text in self.texts if text.startswith("-")]
        flag, _, no = max(flags or self.texts, key=len).partition("/")
        own = next((text for text in self.texts if text.isidentifier()), flag)
        name = identifier(own).lower()
        default, unread = names.default(said.get("default"), kind)
        option = Option(
            name,
            line,
            default,
            argument=passed(flag, name),
            choices=typed_choices(choices, kind),
            low=low,
            high=high,
            doc=names.text(said.get("help")),
            required=not flags or _is_true(said.get("required")),
            left=self._why_left(bool(flags)) or unread,
        )
        if no and not unread:
            return replace(option, argument=switched(name, flag, no.strip()))
        if _is_true(said.get("is_flag")) and not unread:
            return replace(option, default=bool(default), argument=switched(name, flag))
        return option

    def _type(self) -> tuple[str, tuple[bool | int | float | str, ...], float | None, float | None]:
        """Return the type's name, its choices and its bounds."""
        node = self.said.get("type")
        match node:
            case None:
                return "", (), None, None
            case ast.Call(args=args) if last_name(node.func) == "Choice" and args:
                return "", self.names.choices(args[0]), None, None
            case ast.Call(args=args) if last_name(node.func) in _RANGES:
                said = keywords(node)
                low, high = (
                    said.get(key, args[place] if len(args) > place else None)
                    for place, key in enumerate(("min", "max"))
                )
                number = self.names.number
                return _RANGES[last_name(node.func)], (), number(low), number(high)
        word = last_name(node)
        return _WORDS.get(word, word), (), None, None

    def _why_left(self, is_option: bool) -> str:
        if not is_option:
            return "it is positional and has no name"
        if _is_true(self.said.get("multiple")) or "nargs" in self.said:
            return "it takes several values"
        if _is_true(self.said.get("count")):
            return "it is counted"
        return ""


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
