"""Make a command's options from the fields of the values that they fill."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from autoresearch.errors import SettingsError
from autoresearch.options import option_facts, set_fields
from autoresearch.values import Frozen, explain

Command: TypeAlias = Callable[..., None]
T = TypeVar("T", bound=Frozen)
Panels: TypeAlias = Mapping[str, Sequence[str]]

JsonAtEndOption = Annotated[bool, typer.Option("--json", help="Print JSON at the end.")]
ProposerCommandOption = Annotated[
    str | None,
    typer.Option(
        "--proposer-command",
        metavar="COMMAND",
        help="Ask this command instead of an endpoint, such as 'claude -p': the prompt on its "
        "standard input, the reply on its standard output. It starts in an empty folder.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def fill(kind: type[T], options: Mapping[str, Any]) -> T:
    """Return a value of this kind with these options.

    :raises SettingsError: if it refuses them.
    """
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        raise SettingsError(f"these options cannot be used: {explain(error)}") from error


def takes(
    kind: type[Frozen], panels: Panels | None = None, *, partly: bool = False
) -> Callable[[Command], Command]:
    """Decorate a command whose parameter ``asked`` is a value of this kind. In its place the
    command takes one option for each field that has a description and is not set with
    ``--set``.

    :param panels: parameters that the help shows together, by title, in order.
    :param partly: whether ``asked`` is a dict that holds only the fields that the user gave.
    """
    made = dict if partly else partial(fill, kind)
    return lambda command: _derived(command, kind, made, panels or {}, partly=partly)


def _derived(
    command: Command,
    kind: type[Frozen],
    made: Callable[[Mapping[str, Any]], Any],
    panels: Panels,
    *,
    partly: bool,
) -> Command:
    unasked = set_fields(kind)
    fields = [
        _Asked(name, field)
        for name, field in kind.model_fields.items()
        if field.description and name not in unasked
    ]

    @wraps(command)
    def run(**options: Any) -> None:
        values = {field.name: field.read(options.pop(field.name)) for field in fields}
        command(asked=made({name: v for name, v in values.items() if v is not _UNSAID}), **options)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name == "asked":
            parameters += (field.parameter(partly=partly) for field in fields)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    ordered = list(_in_panels(parameters, panels))
    vars(run)["__signature__"] = inspect.Signature(ordered)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run


def _in_panels(parameters: list[inspect.Parameter], panels: Panels) -> Iterator[inspect.Parameter]:
    """Order the parameters as the panels list them, each marked with its panel's title.

    :raises KeyError: if a panel names a parameter that does not exist.
    """
    left = {parameter.name: parameter for parameter in parameters}
    for title, names in panels.items():
        for name in names:
            parameter = left.pop(name)
            for option in _split(parameter.annotation)[1]:
                if isinstance(option, OptionInfo):
                    option.rich_help_panel = title
            yield parameter
    yield from left.values()


_METAVARS = {int: "N", float: "X", Path: "PATH"}
"""Placeholders by type, short enough that a terminal of 80 columns cuts off no option's name."""
_UNSAID = object()
"""The value of an option that was not given."""


class _Asked:
    """One field as a command-line option."""

    def __init__(self, name: str, field: FieldInfo) -> None:
        self.name = name
        self._field = field
        self._type, inner = _split(field.annotation)
        self._said = [*inner, *field.metadata]
        self._as = option_facts(field)

    def parameter(self, *, partly: bool) -> inspect.Parameter:
        """
        :param partly: whether the option may be left out and has no default.
        """
        spelt = self.name.replace("_", "-")
        flag = f"--{spelt}/--no-{spelt}" if self._type is bool else f"--{spelt}"
        text, value = self._field.description or "", self._field.default
        is_required = self._field.is_required()
        if partly and value is not None and not is_required and "Default:" not in text:
            # typer does not show the default of an option that may be left out
            shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            text += f" Default: {shown}."
        low, high = self._as.bounds or self._bounds()
        metavar = None if self._type is bool else _METAVARS.get(self._type, "TEXT")
        flag = self._as.flag or flag
        option = typer.Option(flag, help=text, min=low, max=high, metavar=metavar)
        left_out = partly or not self._is_plain
        default = None if left_out else self._field.get_default(call_default_factory=True)
        if is_required and not partly:
            default = inspect.Parameter.empty
        plain = self._type if self._is_plain else str
        kind = plain if default is not None else plain | None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, option, self._as],
        )

    def read(self, given: Any) -> Any:
        """Return the value that the user gave, parsed."""
        if given is None:
            return _UNSAID
        if self._as.read is None:
            return given
        try:
            return self._as.read(given)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=self._as.flag) from None

    @property
    def _is_plain(self) -> bool:
        """Whether the command line has a type for the field."""
        if self._as.read is not None:
            return False
        return self._type in {bool, int, float, str, Path} or get_origin(self._type) is Literal

    def _bounds(self) -> tuple[float | None, float | None]:
        low: Any = None
        high: Any = None
        for said in self._said if self._is_plain else ():
            if isinstance(said, Ge):
                low = said.ge
            elif isinstance(said, Gt) and self._type is int:
                low = cast(int, said.gt) + 1
            elif isinstance(said, Le):
                high = said.le
        return low, high


def _split(annotation: Any) -> tuple[Any, list[Any]]:
    """Split a type from its Annotated metadata, dropping Optional."""
    if get_origin(annotation) is Annotated:
        inner, *said = get_args(annotation)
        plain, more = _split(inner)
        unpacked = (one.metadata if isinstance(one, FieldInfo) else [one] for one in said)
        return plain, [*more, *chain.from_iterable(unpacked)]
    if get_origin(annotation) in {Union, UnionType} and NoneType in get_args(annotation):
        return _split(next(one for one in get_args(annotation) if one is not NoneType))
    return annotation, []
