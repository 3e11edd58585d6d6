"""Report the options of a script from its own parser, in the Python that runs the script.

The parser's module is patched when the script imports it. At the first call that parses, each
option is reported on a line of its own, and the process ends, so that nothing is trained. Options
are reported before they are parsed, since a missing argument ends the script, and their values
after. A module that is not installed is replaced by one of stand-ins, so that a script can be read
which cannot train here.

Any Python from 3.8 on can read this file, and needs none of this product's packages.
"""

# ruff: noqa: PTH100, PTH109, PTH120, ANN, BLE001 (any Python, at its edge)
# mypy: ignore-errors

import argparse
import enum
import importlib.util
import inspect
import json
import os
import signal
import sys
import types
import typing

_MARK = "\x1eautoresearch-option "
"""``MARK`` of ``trainer.command.observing``, which the script's Python may lack."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_AFTER_PART_S = 10
"""Seconds in which a script that parses only what it knows must parse the rest."""
_BOOLEANS = ("True", "False"), ("true", "false"), ("1", "0")
_depth = []


def _plain(value):
    """Return a value as JSON can hold it: a scalar, None, or a list; text for anything else."""
    if isinstance(value, enum.Enum):
        value = value.value
    if _is_scalar(value):
        return value
    if isinstance(value, (list, tuple, set, range)):
        return [_plain(one) for one in value]
    return {"text": repr(value)[:200]}


def _say(kind, **fields):
    fields = {name: value for name, value in fields.items() if value not in (None, "", [])}
    line = _MARK + json.dumps({"kind": kind, **fields}, default=lambda one: {"text": repr(one)})
    os.write(1, (line + "\n").encode())


def _end():
    sys.stdout.flush()
    os._exit(0)


def _main():
    return getattr(sys.modules.get("__main__"), "__file__", None) or ""


def _is_own(file):
    """Return whether a file is of the script's folders, and not of a library."""
    roots = os.getcwd(), os.path.dirname(os.path.realpath(_main()))
    is_library = not file or file.startswith("<") or "site-packages" in file
    return not is_library and os.path.abspath(file).startswith(roots)


def _caller(*skipped):
    """Return the file of the code that called a library's file."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.endswith(skipped):
        frame = frame.f_back
    return frame.f_code.co_filename


# --- argparse, and what is built on it: HfArgumentParser, jsonargparse, Tap, simple-parsing ------


def _argparse(module):
    parse = module.ArgumentParser._parse_known_args
    whole = module.ArgumentParser.parse_args

    def parse_known(self, *args, **more):
        is_outermost = not _depth and _is_own(_main())
        if is_outermost:
            _report_parser(self)
        _depth.append(self)
        try:
            found = parse(self, *args, **more)
        finally:
            _depth.pop()
        if is_outermost:
            _say("values", values={name: _plain(one) for name, one in vars(found[0]).items()})
            if not _is_own(_caller("argparse.py")):  # a library parses, and needs no second call
                _end()
            signal.alarm(_AFTER_PART_S)
        return found

    def parse_all(self, *args, **more):
        found = whole(self, *args, **more)
        return _end() if _is_own(_main()) else found

    module.ArgumentParser._parse_known_args = parse_known
    module.ArgumentParser.parse_args = parse_all


def _report_parser(parser, command=""):
    groups = {
        action.dest: number
        for number, group in enumerate(parser._mutually_exclusive_groups)
        for action in group._group_actions
    }
    for action in parser._actions:
        kind = type(action).__name__
        if kind in ("_HelpAction", "_VersionAction"):
            continue
        if isinstance(action, argparse._SubParsersAction):  # jsonargparse has a kind of its own
            for name, sub in action.choices.items():
                _report_parser(sub, name)
            continue
        try:
            default = parser.get_default(action.dest)
        except Exception:  # noqa: BLE001 (jsonargparse knows no default of --print_config)
            continue
        hint = getattr(action, "_typehint", None)  # jsonargparse's, in place of a type
        if hint is not None and isinstance(default, bool) and hint is not bool:
            default = None  # True stands for something else, such as a seed of chance
        of_hint = {"type": "" if default is None else type(default).__name__, "action": "Store"}
        if isinstance(default, bool):
            of_hint["words"] = ["true", "false"]
        of_type = {
            "type": _type_of(action.type, default),
            "words": _words_of(action.type, default),
            "action": kind.strip("_").replace("Action", ""),
        }
        _say(
            "option",
            name=action.dest,
            flags=list(action.option_strings),
            **(of_type if hint is None or not _is_scalar(default) else of_hint),
            default=_plain(default),
            const=_plain(action.const),
            choices=_plain(list(action.choices)) if action.choices is not None else None,
            several=action.nargs not in (None, "?") and action.nargs != 0,
            required=action.required and action.nargs not in ("?", "*"),
            help=action.help or "",
            excludes=groups.get(action.dest),
            command=command,
        )


def _type_of(kind, default):
    """Return the name of an option's type; of a function, that of a default which it returns."""
    if kind in (None, str, int, float):
        return "" if kind is None else kind.__name__
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, (int, float)):
        try:
            return type(default).__name__ if kind(str(default)) == default else "?"
        except Exception:  # noqa: BLE001 (the script's own function)
            return "?"
    return str(getattr(kind, "__name__", "?")) if isinstance(kind, type) else "?"


def _words_of(kind, default):
    """Return the words by which a function reads true and false; None if there are none."""
    if kind in (None, int, float) or not isinstance(default, bool):
        return None
    for yes, no in _BOOLEANS:
        try:
            if kind(yes) is True and kind(no) is False:
                return [yes, no]
        except Exception:  # noqa: BLE001 (the script's own function)
            continue
    return None


# --- click and typer -----------------------------------------------------------------------------


def _click(module):
    make, invoke = module.Command.make_context, module.Command.invoke

    def make_context(self, info_name, args, parent=None, **extra):
        if parent is None and _is_own(_main()):
            for name, command in [("", self), *getattr(self, "commands", {}).items()]:
                _report_command(command, name)
        return make(self, info_name, args, parent=parent, **extra)

    def end(self, ctx):
        if not _is_own(_main()):
            return invoke(self, ctx)
        _say("values", values={name: _plain(one) for name, one in ctx.params.items()})
        return invoke(self, ctx) if getattr(self, "commands", None) else _end()

    module.Command.make_context, module.Command.invoke = make_context, end


def _report_command(command, name):
    own = (one for one in command.params if not str(one.name).endswith("_completion"))
    for one in own:
        described = getattr(one, "type_descriptor", None)  # of typer
        type_ = described or one.type
        kind = getattr(type_, "annotation", None) or getattr(type_, "name", "")
        kind = getattr(kind, "__name__", str(kind)).replace(" range", "")
        is_switch = bool(getattr(one, "is_flag", False))
        default = _plain(one.default)
        if is_switch and not isinstance(default, bool):
            default = False
        _say(
            "option",
            name=one.name,
            flags=[*one.opts, "|", *one.secondary_opts] if one.opts[0][:1] == "-" else [],
            action="StoreTrue" if is_switch else "Store",
            type={"integer": "int", "text": "str", "boolean": "bool"}.get(kind, kind),
            default=default,
            choices=_plain(list(getattr(type_, "choices", None) or [])),
            low=getattr(one, "min", getattr(type_, "min", None)),
            high=getattr(one, "max", getattr(type_, "max", None)),
            several=bool(getattr(one, "multiple", False)) or one.nargs != 1 or "list" in str(kind),
            required=bool(one.required),
            help=getattr(one, "help", "") or "",
            command=name,
        )


# --- absl ----------------------------------------------------------------------------------------


def _absl(module):
    parse = module.FlagValues.__call__

    def called(self, *args, **more):
        for owner, flags in self.flags_by_module_dict().items():
            for flag in flags if not owner.startswith("absl.") else ():
                is_switch = bool(flag.boolean)
                _say(
                    "option",
                    name=flag.name,
                    flags=["--" + flag.name, *(["|", "--no" + flag.name] if is_switch else [])],
                    action="StoreTrue" if is_switch else "Store",
                    type={"string": "str", "integer": "int"}.get(
                        flag.flag_type(), flag.flag_type()
                    ),
                    default=_plain(flag.default),
                    choices=_plain(list(getattr(flag.parser, "enum_values", None) or [])),
                    low=getattr(flag.parser, "lower_bound", None),
                    high=getattr(flag.parser, "upper_bound", None),
                    several="multi" in flag.flag_type() or "list" in flag.flag_type(),
                    help=flag.help,
                )
        parse(self, *args, **more)
        _say("values", values={name: _plain(self[name].value) for name in self})
        _end()

    module.FlagValues.__call__ = called


# --- signatures: fire, tyro, and HfArgumentParser where transformers is not installed -------------


def _fire(module):
    def called(component=None, *_args, **_more):
        if component is None:
            component = {
                name: one
                for name, one in sys._getframe(1).f_globals.items()
                if inspect.isfunction(one) and one.__module__ == "__main__"
            }
        if inspect.isclass(component):
            methods = inspect.getmembers(component, inspect.isfunction)
            component = {name: one for name, one in methods if not name.startswith("_")}
        for name, one in component.items() if isinstance(component, dict) else [("", component)]:
            _report_signature(one, name, hyphens=False)
        _end()

    module.Fire = called


def _tyro(module):
    def called(f, *_args, **_more):
        _report_signature(f, "", hyphens=True)
        _end()

    module.cli = called


def _hugging_face(module):
    def called(dataclass_types, *_args, **_more):
        many = isinstance(dataclass_types, (list, tuple))
        for one in dataclass_types if many else [dataclass_types]:
            _report_signature(one, "", hyphens=False)
        _end()

    if isinstance(module, _StandIns):
        module.HfArgumentParser = called


def _report_signature(owner, command, hyphens, prefix="", values=None):
    """Report each parameter of a function, or field of a dataclass, and the fields of its
    fields."""
    fields = getattr(owner, "__dataclass_fields__", {})
    try:
        hints = typing.get_type_hints(owner)
    except Exception:  # noqa: BLE001 (the script's own types)
        hints = {}
    for name, one in inspect.signature(owner).parameters.items():
        if name == "self" or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        field, hint = fields.get(name), hints.get(name, one.annotation)
        default = None if one.default is one.empty else one.default
        factory = getattr(field, "default_factory", None)
        if callable(factory):
            default = factory()
        if values is not None:
            default = getattr(values, name, default)
        inner = [hint] if hasattr(hint, "__dataclass_fields__") else []
        if inner:
            _report_signature(hint, command, hyphens, prefix + name + ".", default)
            continue
        spelled = (prefix + name).replace("_", "-") if hyphens else prefix + name
        group, dot, last = spelled.rpartition(".")
        is_switch = hyphens and isinstance(default, bool)
        literals = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        said = dict(getattr(field, "metadata", {})) if field else {}
        _say(
            "option",
            name=prefix + name,
            flags=[
                "--" + spelled,
                *(["|", "--" + group + dot + "no-" + last] if is_switch else []),
            ],
            action="StoreTrue" if is_switch else "Store",
            type=hint.__name__ if hint in (int, float, str, bool) else type(default).__name__,
            words=["True", "False"] if isinstance(default, bool) and not is_switch else None,
            default=_plain(default),
            choices=_plain(list(literals or ())),
            several=isinstance(default, (list, tuple, dict)),
            required=one.default is one.empty and not callable(factory),
            help=said.get("help", ""),
            command=command,
        )


# --- a script whose globals a file overwrites, as nanoGPT's -------------------------------------


def _globals():
    """Report the globals of a script when it runs code over them, and what the code made of
    them."""

    def called(code):
        known = sys._getframe(1).f_globals
        del known["exec"]  # what the code runs in turn is a part of it
        own = [name for name in known if name[:1] != "_" and _is_scalar(known[name])]
        for name in own:
            kind = type(known[name]).__name__
            _say(
                "option",
                name=name,
                flags=["--" + name],
                action="Store",
                type="" if kind == "NoneType" else kind,
                words=["True", "False"] if kind == "bool" else None,
                default=known[name],
                of="globals",
            )
        exec(code, known)
        values = {name: one for name, one in known.items() if name[:1] != "_" and _is_scalar(one)}
        _say("values", values=values)
        _end()

    sys.modules["__main__"].exec = called


def _is_scalar(value):
    return value is None or isinstance(value, (bool, int, float, str))


# --- modules that are imported later, or not installed --------------------------------------------

_PATCHES = {
    "click.core": _click,
    "typer._click.core": _click,
    "absl.flags._flagvalues": _absl,
    "fire": _fire,
    "tyro": _tyro,
    "transformers": _hugging_face,
}


_ALL = dict(_PATCHES)


class _Patched:
    @staticmethod
    def find_spec(name, path=None, target=None):
        patch = _PATCHES.pop(name, None)
        spec = importlib.util.find_spec(name) if patch is not None else None
        if spec is not None and spec.loader is not _Missing:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                patch(module)

            spec.loader.exec_module = exec_module
        return spec


class _StandIn:
    """Anything that a missing module may hold: called, subclassed, iterated, compared."""

    def __init__(self, *_args, **_more):
        pass

    def __call__(self, *args, **more):
        is_decorator = len(args) == 1 and callable(args[0]) and not more
        return args[0] if is_decorator else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __mro_entries__(self, bases):
        return ()

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __getitem__(self, key):
        return self

    __or__ = __ror__ = __add__ = __mul__ = __truediv__ = __enter__ = __getitem__

    def __exit__(self, *_args):
        return None


class _StandIns(types.ModuleType):
    __path__ = ()
    __version__ = "0.0.0"  # some compare it when they are imported

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn()


class _Missing:
    """Makes a module of stand-ins for one that the script's own files import and nobody has."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        parent = sys.modules.get(name.rpartition(".")[0])
        by_own = parent is None and _is_own(_caller("sitecustomize.py", "importlib._bootstrap>"))
        if isinstance(parent, _StandIns) or by_own:
            return importlib.util.spec_from_loader(name, cls, is_package=True)
        return None

    @staticmethod
    def create_module(spec):
        return _StandIns(spec.name)

    @staticmethod
    def exec_module(module):
        _say("missing", name=module.__name__)
        if patch := _ALL.get(module.__name__):
            patch(module)


_argparse(argparse)
_globals()
sys.meta_path.insert(0, _Patched)

# A file of this name that the environment has itself comes next.
sys.path[:] = [one for one in sys.path if os.path.abspath(one) != _HERE]
_ours = sys.modules.pop(__name__, None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError:
    sys.modules[__name__] = _ours
sys.meta_path.append(_Missing)
