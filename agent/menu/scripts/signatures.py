"""Find options that are a function's parameters (typer, Fire, tyro) or a dataclass's fields (tyro,
HfArgumentParser, draccus, pyrallis, simple-parsing)."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from agent.menu.scripts.option import Option
from agent.menu.scripts.parser_options import POSITIONAL, SEVERAL, called, declared
from agent.menu.scripts.tree import Names, calls, dotted, functions, keywords, last_name
from trainer.script.constants import field_default, is_dataclass

MAX_DEPTH = 4

Spelling: TypeAlias = Literal["typer", "tyro", "underscores"]
"""How a library spells an option: typer and tyro ``--learning-rate`` and ``--no-compile``, the
others ``--learning_rate`` and ``--compile=False``. Tyro accepts a dataclass or a function."""

DATACLASS_CLI = {
    *("HfArgumentParser", "TrlParser", "draccus", "pyrallis", "simple_parsing"),
    "argparse_dataclass",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Declaration of a parameter or a field."""

    name: str
    line: int
    annotation: ast.expr | None
    default: ast.expr | None
    doc: str = ""
    command: str = ""
    """Subcommand of typer or Fire that it belongs to."""


def signature_options(
    tree: ast.Module, names: Names, beside: Iterable[ast.Module] = ()
) -> Iterator[Option]:
    """Yield every option that a signature gives, through any library that the script calls.

    :param beside: modules that the script imports, whose dataclasses it may use.
    """
    modules = (*beside, tree)
    classes = {n.name: n for one in modules for n in ast.walk(one) if isinstance(n, ast.ClassDef)}
    by_name = {one.name: one for one in functions(tree)}
    commands = [one for one in by_name.values() if any(map(_is_typer, one.decorator_list))]
    if any(last_name(one.func) == "Typer" for one in calls(tree)):
        for function in commands:
            word = function.name.replace("_", "-") if len(commands) > 1 else ""
            for one in parameters_of(function):
                yield _option(replace(one, command=word), "typer", names)
    for call in calls(tree):
        if last_name(call.func) == "Fire":
            for one in _fire_parameters(call, tree):
                yield _option(one, "underscores", names)
            continue
        spelling = _spelling(call)
        given = [node.id for node in ast.walk(call) if isinstance(node, ast.Name)]
        for name in given if spelling else ():
            parameters: Iterable[Parameter] = ()
            if name in by_name:
                parameters = parameters_of(by_name[name])
            elif name in classes and is_dataclass(classes[name]):
                parameters = _nested(fields_of(classes[name], names), classes, names)
            for one in parameters:
                yield _option(one, spelling or "underscores", names)


def _fire_parameters(call: ast.Call, tree: ast.Module) -> Iterator[Parameter]:
    """Yield the parameters of what Fire is given: a function, a class, whose methods are commands,
    a dictionary of commands or, without arguments, the module's public functions."""
    by_name = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    commands = {} if call.args or call.keywords else {name: name for name in by_name}
    for given in (*call.args, *(one.value for one in call.keywords)):
        match given:
            case ast.Name(id=name) if name in classes:
                for method in classes[name].body:
                    if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                        for one in parameters_of(method)[1:]:
                            yield replace(one, command=method.name)
            case ast.Name(id=name):
                commands[""] = name
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                        commands[str(key.value)] = value.id
    for word, name in commands.items():
        if name in by_name and not word.startswith("_"):
            yield from (replace(one, command=word) for one in parameters_of(by_name[name]))


def _nested(
    fields: Iterable[Parameter], classes: Mapping[str, ast.ClassDef], names: Names, depth: int = 0
) -> Iterator[Parameter]:
    """Yield the fields, and instead of a dataclass field its own fields: ``optim.lr``."""
    for one in fields:
        annotation = one.annotation
        inner = classes.get(annotation.id) if isinstance(annotation, ast.Name) else None
        if inner is None or not is_dataclass(inner) or depth > MAX_DEPTH:
            yield one
            continue
        for each in _nested(fields_of(inner, names), classes, names, depth + 1):
            yield replace(each, name=f"{one.name}.{each.name}")


def _is_typer(decorator: ast.expr) -> bool:
    function = called(decorator)
    is_command = isinstance(function, ast.Attribute) and function.attr in {"command", "callback"}
    return is_command and "click" not in dotted(function)


def _spelling(call: ast.Call) -> Spelling | None:
    parts = dotted(call.func).split(".")
    if parts == ["typer", "run"]:
        return "typer"
    if parts[0] == "tyro":
        return "tyro"
    return "underscores" if DATACLASS_CLI & set(parts) else None


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Parameter]:
    """Return a function's parameters, those without a default included."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(plain, defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [Parameter(arg.arg, arg.lineno, arg.annotation, value) for arg, value in pairs]


def fields_of(node: ast.ClassDef, names: Names) -> Iterator[Parameter]:
    """Yield a dataclass's fields, with the text below each, or ``field(metadata={"help": …})``, as
    its doc."""
    for place, statement in enumerate(node.body):
        match statement, node.body[place + 1 : place + 2]:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value), below:
                doc = _field_help(value, names)
                match below:
                    case [ast.Expr(value=ast.Constant(value=str() as text))]:
                        doc = text
                yield Parameter(name, statement.lineno, kind, value, doc)


def _field_help(value: ast.expr | None, names: Names) -> str:
    metadata = keywords(value).get("metadata") if isinstance(value, ast.Call) else None
    if not isinstance(metadata, ast.Dict):
        return ""
    pairs = zip(metadata.keys, metadata.values, strict=True)
    return next((names.text(text) for key, text in pairs if names.text(key) == "help"), "")


# --- one parameter ------------------------------------------------------------------------------


def _option(parameter: Parameter, spelling: Spelling, names: Names) -> Option:
    annotation, info = _unwrapped(parameter.annotation)
    default = parameter.default
    if isinstance(default, ast.Call) and last_name(default.func) in {"Option", "Argument"}:
        info, default = default, default.args[0] if default.args else None
    elif default is not None:
        default = field_default(default) or default
    required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    said = keywords(info) if info is not None else {}
    hyphens = spelling != "underscores"
    name = parameter.name.replace(".", "_")
    usual = f"--{parameter.name.replace('_', '-') if hyphens else parameter.name}"
    flag, no = _flags(info, names, usual)
    literals: ast.expr | None = None
    left = ""
    if (info is not None and last_name(info.func) == "Argument") or (
        spelling == "typer" and default is None and info is None
    ):
        left = POSITIONAL
    match annotation:
        case ast.Name(id=kind) if kind in names.enumerations:
            members = names.enumerations[kind]
            annotation, literals = None, ast.Tuple([*members.values()])
            default = (
                members.get(default.attr, default)
                if isinstance(default, ast.Attribute)
                else default
            )
        case ast.Subscript(value=outer, slice=inside) if last_name(outer) == "Literal":
            literals = inside if isinstance(inside, ast.Tuple) else ast.Tuple([inside])
        case ast.Subscript(value=outer) if last_name(outer).lower() in {"list", "tuple"}:
            left = left or SEVERAL
    is_switch = hyphens and isinstance(names.known(default), bool)
    return declared(
        names,
        name,
        parameter.line,
        flag,
        None if required else default,
        last_name(annotation) if annotation is not None else "",
        switch=(flag, no) if is_switch else None,
        choices=names.choices(literals),
        left=left,
        low=names.number(said.get("min")),
        high=names.number(said.get("max")),
        doc=parameter.doc or names.text(said.get("help")),
        required=required,
        command=parameter.command,
    )


def _unwrapped(annotation: ast.expr | None) -> tuple[ast.expr | None, ast.Call | None]:
    """Split a type from its Annotated metadata, dropping Optional: return the type and the call
    beside it."""
    match annotation:
        case ast.Subscript(value=outer, slice=ast.Tuple(elts=[inner, *beside])) if (
            last_name(outer) == "Annotated"
        ):
            info = next((one for one in beside if isinstance(one, ast.Call)), None)
            return _unwrapped(inner)[0], info
        case ast.Subscript(value=outer, slice=inner) if last_name(outer) == "Optional":
            return inner, None
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return left, None
    return annotation, None


def _flags(info: ast.Call | None, names: Names, usual: str) -> tuple[str, str]:
    """Return the longest flag, and the one for false, ``--no-…`` by default."""
    texts = [names.text(one) for one in info.args] if info is not None else []
    flags = [text for text in texts if text.startswith("-")]
    if not flags:
        group, dot, last = usual.removeprefix("--").rpartition(".")
        return usual, f"--{group}{dot}no-{last}"
    yes, _, no = max(flags, key=len).partition("/")
    return yes.strip(), no.strip()
