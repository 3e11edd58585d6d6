"""Find the options of a script that uses argparse, click or absl, or reads its environment."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.menu.scripts.option import Option, identifier, passed, switched, typed_choices
from agent.menu.scripts.tree import Names, calls, dotted, functions, keywords, last_name


def argparse_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``add_argument`` of the script, with the defaults of ``set_defaults``."""
    commands = _subcommands(tree, names)
    aliases = {  # names bound to parser.add_argument
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "add_argument"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    defaults = {
        name: value
        for call in calls(tree)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "set_defaults"
        for name, value in keywords(call).items()
    }
    cast = {
        last_name(call.args[0])
        for call in calls(tree)
        if last_name(call.func) in {"int", "float"} and len(call.args) == 1
    }
    for call in calls(tree):
        func = call.func
        adds = isinstance(func, ast.Attribute) and func.attr == "add_argument"
        if not adds and not (isinstance(func, ast.Name) and func.id in aliases):
            continue
        if flags := [text for one in call.args if (text := names.text(one))]:
            parser = last_name(func.value) if isinstance(func, ast.Attribute) else ""
            argument = _Argument(flags, keywords(call), names, commands.get(parser, ""))
            option = argument.option(call.lineno, defaults)
            is_text = not argument.kind and argument.action in {"", "store"}
            if is_text and isinstance(option.default, int | float) and option.name not in cast:
                why = "it has no type, so values from the command line are text; add type= to it"
                option = replace(option, left=option.left or why)
            yield option


@dataclass(frozen=True, slots=True)
class _Argument:
    """One call of ``add_argument``."""

    flags: list[str]
    said: Mapping[str, ast.expr]
    names: Names
    command: str
    """Subcommand that it belongs to."""

    def option(self, line: int, defaults: Mapping[str, ast.expr]) -> Option:
        said, names, flag = self.said, self.names, self.flag
        name = identifier(names.text(said.get("dest")) or flag)
        default, unread = names.default(defaults.get(name, said.get("default")), self.kind)
        option = Option(
            name,
            line,
            default,
            argument=passed(flag, name),
            choices=typed_choices(names.choices(said.get("choices")), self.kind),
            doc=names.text(said.get("help")),
            required=_is_true(said.get("required"))
            if flag.startswith("-")
            else "nargs" not in said,
            left=self._why_left() or unread,
            command=self.command,
        )
        if unread:
            return option
        match self.action:
            case "store_true":
                return replace(option, default=False, argument=switched(name, flag))
            case "store_false":
                return replace(option, default=True, argument=switched(name, "", flag))
            case "BooleanOptionalAction":
                no = f"--no-{flag.removeprefix('--')}"
                return replace(option, argument=switched(name, flag, no))
        return option

    @property
    def flag(self) -> str:
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    @property
    def kind(self) -> str:
        return last_name(self.said["type"]) if "type" in self.said else ""

    @property
    def action(self) -> str:
        action = self.said.get("action")
        return "" if action is None else self.names.text(action) or last_name(action)

    def _why_left(self) -> str:
        if not self.flag.startswith("-"):
            return "it is positional and has no name"
        if self.action not in {"", "store", "store_true", "store_false", "BooleanOptionalAction"}:
            return f"its action is {self.action}"
        if "nargs" in self.said and self.names.text(self.said["nargs"]) != "?":
            return "it takes several values"
        if self.kind == "bool":
            return "type=bool converts every text to true, even False"
        return ""


def _subcommands(tree: ast.Module, names: Names) -> dict[str, str]:
    """Return the parsers made by ``add_parser``, with the subcommand's name."""
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[target],
                value=ast.Call(func=ast.Attribute(attr="add_parser"), args=[word, *_]),
            ):
                found[last_name(target)] = names.text(word) or last_name(target)
    return found


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


_READERS = {"environ.get", "os.environ.get", "getenv", "os.getenv"}
_KINDS = {"int", "float", "string", "enum"}


def environment_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every variable that the script reads with a default: ``int(os.environ.get("N",
    "5"))``."""
    casts = {
        id(call.args[0]): dotted(call.func)
        for call in calls(tree)
        if len(call.args) == 1 and dotted(call.func) in {"int", "float", "str"}
    }
    for call in calls(tree):
        if dotted(call.func) not in _READERS or len(call.args) != 2:
            continue
        name = names.text(call.args[0])
        if not name.isidentifier() or not name.isascii():
            continue
        default, unread = names.default(call.args[1], casts.get(id(call), ""))
        yield Option(name, call.lineno, default, variable="" if unread else name, left=unread)


def absl_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``flags.DEFINE_float("lr", 1e-3, "help")``."""
    for call in calls(tree):
        define, _, kind = last_name(call.func).partition("_")
        if define != "DEFINE" or len(call.args) < 2 or not names.text(call.args[0]):
            continue
        name, kind = names.text(call.args[0]), {"integer": "int"}.get(kind, kind)
        is_truth = kind in {"bool", "boolean"}
        default, unread = names.default(call.args[1], kind)
        known = is_truth or kind in _KINDS
        yield Option(
            name,
            call.lineno,
            default,
            argument=switched(name, f"--{name}", f"--no{name}")
            if is_truth
            else passed(f"--{name}", name),
            choices=names.choices(call.args[2]) if kind == "enum" and len(call.args) > 2 else (),
            doc=names.text(call.args[-1]),
            left=unread or ("" if known else f"it is a flag of kind {kind}"),
        )
