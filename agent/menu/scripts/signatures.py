"""Find options that are a function's parameters (typer, fire, tyro) or a dataclass's fields (tyro,
HfArgumentParser, draccus, pyrallis, simple-parsing)."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from agent.menu.scripts.option import Option, passed, switched, typed_choices
from agent.menu.scripts.tree import Names, calls, dotted, functions, keywords, last_name
from autoresearch.values import Scalar
from trainer.script.constants import assignments, field_default, is_dataclass

MAX_DEPTH = 4

Spelling: TypeAlias = Literal["typer", "tyro", "underscores"]
"""How a library spells an option: typer and tyro ``--learning-rate`` and ``--no-compile``, the
others ``--learning_rate`` and ``--compile=False``. Tyro accepts a dataclass or a function."""

_DATACLASS_CLI = {
    "HfArgumentParser",
    "TrlParser",
    "draccus",
    "pyrallis",
    "simple_parsing",
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
    for spelling, parameters in _signatures(tree, names, beside):
        for parameter in parameters:
            yield _option(_without_enum(parameter, tree), spelling, names)


def _signatures(
    tree: ast.Module, names: Names, beside: Iterable[ast.Module]
) -> Iterator[tuple[Spelling, list[Parameter]]]:
    by_name = {one.name: one for one in (*functions(tree), *_public(tree.body))}
    modules = (*beside, tree)
    classes = {n.name: n for one in modules for n in ast.walk(one) if isinstance(n, ast.ClassDef)}
    is_typer = any(last_name(one.func) == "Typer" for one in calls(tree))
    commands = [
        function
        for function in by_name.values()
        if is_typer and any(_is_typer_command(one) for one in function.decorator_list)
    ]
    for function in commands:
        word = function.name.replace("_", "-") if len(commands) > 1 else ""
        yield "typer", [replace(one, command=word) for one in parameters_of(function)]
    for call in calls(tree):
        spelling = _spelling(call)
        if spelling is None:
            continue
        for word, name in _given_to(call, tree):
            if name in by_name:
                parameters = parameters_of(by_name[name])
                yield spelling, [replace(one, command=word) for one in parameters]
            elif name in classes and is_dataclass(classes[name]):
                yield spelling, list(_nested(fields_of(classes[name], names), classes, names))
            elif name in classes and last_name(call.func) == "Fire":
                for method in _public(classes[name].body):
                    parameters = parameters_of(method)[1:]
                    yield spelling, [replace(one, command=method.name) for one in parameters]


def _given_to(call: ast.Call, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of what a call hands to its library, each with its command's word: Fire
    takes commands as a dictionary or, without arguments, every function of the module."""
    given = [*call.args, *(one.value for one in call.keywords)]
    if not given and last_name(call.func) == "Fire":
        yield from ((one.name, one.name) for one in _public(tree.body))
    for one in given:
        for key, value in (
            zip(one.keys, one.values, strict=True) if isinstance(one, ast.Dict) else ()
        ):
            match key, value:
                case ast.Constant(value=str() as word), ast.Name(id=name):
                    yield word, name
        inner = one.elts if isinstance(one, ast.Tuple | ast.List) else []
        yield from (("", each.id) for each in (one, *inner) if isinstance(each, ast.Name))


def _public(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for one in body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            yield one


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


def _is_typer_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    is_command = isinstance(called, ast.Attribute) and called.attr in {"command", "callback"}
    return is_command and "click" not in dotted(called)


def _spelling(call: ast.Call) -> Spelling | None:
    parts = dotted(call.func).split(".")
    if parts == ["typer", "run"]:
        return "typer"
    if parts[0] == "tyro":
        return "tyro"
    if parts[-1] == "Fire" or _DATACLASS_CLI & set(parts):
        return "underscores"
    return None


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Parameter]:
    """Return a function's parameters, those without a default included."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(plain, defaults, strict=True)]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [Parameter(arg.arg, arg.lineno, arg.annotation, value) for arg, value in pairs]


def fields_of(node: ast.ClassDef, names: Names) -> Iterator[Parameter]:
    """Yield a dataclass's fields, with the text below each as its doc."""
    for place, statement in enumerate(node.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        doc = ""
        match node.body[place + 1 : place + 2]:
            case [ast.Expr(value=ast.Constant(value=str() as text))]:
                doc = text
        yield Parameter(
            statement.target.id,
            statement.lineno,
            statement.annotation,
            statement.value,
            doc or _field_help(statement.value, names),
        )


def _field_help(value: ast.expr | None, names: Names) -> str:
    """Return the text in ``field(metadata={"help": …})``."""
    metadata = keywords(value).get("metadata") if isinstance(value, ast.Call) else None
    if isinstance(metadata, ast.Dict):
        for key, text in zip(metadata.keys, metadata.values, strict=True):
            if names.text(key) == "help":
                return names.text(text)
    return ""


# --- one parameter ------------------------------------------------------------------------------


def _option(parameter: Parameter, spelling: Spelling, names: Names) -> Option:
    annotation, info = _unwrapped(parameter.annotation)
    default = parameter.default
    if isinstance(default, ast.Call) and last_name(default.func) in {"Option", "Argument"}:
        info, default = default, default.args[0] if default.args else None
    elif default is not None:
        default = field_default(default) or default
    said = keywords(info) if info is not None else {}
    kind = last_name(annotation) if annotation is not None else ""
    hyphens = spelling != "underscores"
    flag, no = _flags(
        info, names, f"--{parameter.name.replace('_', '-') if hyphens else parameter.name}"
    )
    name = parameter.name.replace(".", "_")
    required = default is None or (isinstance(default, ast.Constant) and default.value is ...)
    value, unread = names.default(None if required else default, kind)
    literals: tuple[Scalar, ...] = ()
    match annotation:
        case ast.Subscript(value=outer, slice=inside) if last_name(outer) == "Literal":
            literals = names.choices(
                inside if isinstance(inside, ast.Tuple) else ast.Tuple([inside])
            )
    option = Option(
        name,
        parameter.line,
        value,
        argument=passed(flag, name),
        choices=typed_choices(literals, kind),
        low=names.number(said.get("min")),
        high=names.number(said.get("max")),
        doc=parameter.doc or names.text(said.get("help")),
        required=required,
        left=_why_left(info, default, spelling, annotation) or unread,
        command=parameter.command,
    )
    if isinstance(value, bool) and hyphens:
        stuck = "" if (no if value else flag) else "the command line cannot change it"
        return replace(option, argument=switched(name, flag, no), left=option.left or stuck)
    return option


def _without_enum(parameter: Parameter, tree: ast.Module) -> Parameter:
    """Return a parameter with an enumeration type as one of literal values."""
    annotation, info = _unwrapped(parameter.annotation)
    name = annotation.id if isinstance(annotation, ast.Name) else ""
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None or not any(last_name(base).endswith("Enum") for base in node.bases):
        return parameter
    members = {member: value for one in node.body for member, value in assignments(one)}
    literal = ast.Subscript(ast.Name("Literal"), ast.Tuple(list(members.values())), ast.Load())
    default = parameter.default
    if isinstance(default, ast.Call) and default.args:
        info, default = default, default.args[0]
    if isinstance(default, ast.Attribute):
        default = members.get(default.attr, default)
    beside = ast.Tuple([literal, info]) if info is not None else None
    kept = ast.Subscript(ast.Name("Annotated"), beside, ast.Load()) if beside else literal
    return replace(parameter, annotation=kept, default=default)


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
    pairs = [text.partition("/") for text in texts if text.strip().startswith(("-", "/"))]
    if not pairs:
        group, dot, last = usual.removeprefix("--").rpartition(".")
        return usual, f"--{group}{dot}no-{last}"
    yes = max((pair[0].strip() for pair in pairs), key=len)
    return yes, max((pair[2].strip() for pair in pairs), key=len)


def _why_left(
    info: ast.Call | None, default: ast.expr | None, spelling: Spelling, annotation: ast.expr | None
) -> str:
    is_argument = info is not None and last_name(info.func) == "Argument"
    if is_argument or (spelling == "typer" and default is None and info is None):
        return "it is positional and has no name"
    match annotation:
        case ast.Subscript(value=outer) if last_name(outer).lower() in {
            "list",
            "tuple",
            "sequence",
        }:
            return "it takes several values"
    return ""
