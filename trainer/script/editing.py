"""Set a script's constants to other values, and its slots to other code, in a copy of its text.

Settings are the constants of the module, and

- a local name of ``main`` or ``train``, if one statement outside any block assigns it, and nothing
else;

- an entry that a script sets once: ``params["eta"] = 0.1``;

- a number that a call receives under a name that trainers use: ``SGD(weights, lr=0.1)``. Calls
that draw, measure a loss, or split or load data keep theirs, since those may be part of the
evaluation;

- such a number without a name, where its place says what it is: ``SGD(weights, 0.1)``;

- the seed of a generator: ``torch.manual_seed(1)``;

- how often the loop that trains runs: ``for epoch in range(100)``.

A name that is taken, or that occurs twice, is qualified: ``SGD_lr``, ``main_batch_size``. What two
equal calls receive has no name of its own and is not found.
"""

import ast
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import CODE, did_you_mean, json_text
from trainer.script.constants import (
    SETTINGS,
    Constant,
    assigned_lines,
    assignments,
    constants,
    constants_in,
    left_out,
    top_statements,
)
from trainer.script.regions import regions, replaced


def edited(source: str, values: Mapping[str, Scalar]) -> str:
    """Return the script with these constants and slots set, and every other character unchanged.

    :param values: by the names that :func:`settings` gives; code by the name of its slot, as in
        ``code.activation``.
    :raises SpecError: if the script is not Python, if it has no such constant, or if a value cannot
        be written down.
    """
    script_tree(source)
    codes = {name: str(code) for name, code in values.items() if name.startswith(CODE)}
    text = replaced(source, {name.removeprefix(CODE): code for name, code in codes.items()})
    values = {name: value for name, value in values.items() if name not in codes}
    known = settings(text)
    places = [(_known(text, known, name), value) for name, value in values.items()]
    # From the end, so that replacements do not move what is still to be found.
    places.sort(key=lambda one: _place(one[0]), reverse=True)
    for constant, value in places:
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError(
                f"{constant.name} = {value} cannot be written into a script; give a finite number"
            )
        node = constant.node
        assert node.end_lineno is not None
        # The parser counts columns in bytes, and lines as bytes.splitlines does.
        lines = text.encode("utf-8", "surrogatepass").splitlines(keepends=True)
        before = [*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset]]
        after = [lines[node.end_lineno - 1][node.end_col_offset :], *lines[node.end_lineno :]]
        text = b"".join([*before, repr(value).encode(), *after]).decode("utf-8", "surrogatepass")
    found = settings(text)
    now = {name: (type(one.value), one.value) for name, one in found.items()}
    wrong = [name for name, value in values.items() if now.get(name) != (type(value), value)]
    if wrong or list(found) != list(known):
        raise SpecError(
            f"the script could not be rewritten so that {', '.join(wrong) or 'only that'} changes; "
            "give the values as arguments instead"
        )
    return text


def settings(source: str) -> dict[str, Constant]:
    """Return everything outside the script's slots that can be set, by its name in a menu: the
    module's constants, then the others in the order of the text.

    :raises SpecError: if the script or its slots cannot be read.
    """
    tree = script_tree(source)
    slots = [range(one.begin, one.end) for one in regions(source).values()]

    def is_outside(one: Constant) -> bool:
        return not any(one.line in lines for lines in slots)

    own = {name: one for name, one in constants(tree).items() if is_outside(one)}
    everywhere = [*_locals(tree), *_entries(tree), *_arguments(tree), *_loops(tree)]
    found = sorted(filter(is_outside, everywhere), key=_place)
    times = Counter(one.name for one in found)
    times_owned = Counter((one.owner, one.name) for one in found)
    named: dict[str, Constant] = {}
    for one in found:
        is_free = times[one.name] == 1 and one.name not in own
        name = one.name if is_free else f"{one.owner}_{one.name}"
        if times_owned[one.owner, one.name] == 1 and name not in {*own, *named}:
            named[name] = replace(one, name=name)
    # What later versions set too comes last, so that no name in a menu means something else.
    places = {_place(one) for one in (*own.values(), *named.values())}
    for one in sorted(filter(is_outside, _more_arguments(tree)), key=_place):
        name = one.name
        if name in {*own, *named} and one.owner != "call":
            name = f"{one.owner}_{name}"
        if name in {*own, *named} and one.owner == "call":
            name = next(each for n in count(2) if (each := f"{name}_{n}") not in {*own, *named})
        if _place(one) not in places and name not in {*own, *named}:
            named[name] = replace(one, name=name)
    return own | named


def unset(source: str) -> dict[str, str]:
    """Return the settings of a script that :func:`settings` cannot set, by their names, each with
    the reason.

    :raises SpecError: if the script or its slots cannot be read.
    """
    tree, known = script_tree(source), settings(source)
    places = {_place(one) for one in known.values()}
    found: dict[str, str] = {}
    everywhere = (*_locals(tree), *_entries(tree), *_arguments(tree), *_more_arguments(tree))
    for one in everywhere:
        if _place(one) not in places:
            found.setdefault(one.name, "several calls receive it, and none has a name of its own")
    for name, why in left_out(tree):
        found.setdefault(name, why)
    return {name: why for name, why in found.items() if name not in known}


def _place(one: Constant) -> tuple[int, int]:
    """Return where it is in the text."""
    return one.node.lineno, one.node.col_offset


def script_tree(source: str) -> ast.Module:
    """Parse a script without running it.

    :raises SpecError: if it is not valid in this interpreter's Python version.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the script's strings
            return ast.parse(source)
    except SyntaxError as error:
        raise SpecError(
            f"the script is not valid Python: {error.msg} on line {error.lineno}; "
            "give a script for this version of Python"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise SpecError(f"the script cannot be read: {error}; give a Python script") from error


def _known(source: str, known: Mapping[str, Constant], name: str) -> Constant:
    if name in known:
        return known[name]
    if lines := ", ".join(map(str, assigned_lines(script_tree(source), name))):
        raise SpecError(
            f"{name} cannot be set: the script computes it, or assigns it in a block or several "
            f"times (line {lines}); assign it once, as a constant at the top"
        )
    raise SpecError(f"the script has no constant {json_text(name)}{did_you_mean(name, known)}")


# --- settings that are no constants of the module ------------------------------------------------

_TRAINS = re.compile(r"main|run|fit|experiment|(pre)?train(ing)?(_\w+)?")
_ARGUMENT = re.compile(
    r"(?i)(\w+_)?(lr|batch_size|dropout|weight_decay|momentum|epochs|hidden_(size|dim|units))"
    r"|lr_\w+|learning_rate\w*|eta|step_size|wd|betas?|beta_?\d|eps|epsilon|rho|alpha|gamma|tau"
    r"|lambda\w*|reg_\w+|l[12](_\w+)?|c|p|tol|units|hidden\w*|warmup\w*|clip\w*|max_norm|depth|width"
    r"|(n_|num_)?(layers?|heads?)|nhead|d_model|n_estimators|n_neighbors|n_components"
    r"|max_(depth|features|leaf_nodes|leaves|bin|iter|steps|samples)|num_(leaves|boost_round)|n_iter"
    r"|min_(samples|child|data|split)_\w+|(sub|col)sample\w*|(feature|bagging)_fraction"
    r"|seed|random_(seed|state)"
)
_PLACED = (
    (r"(?i)sgd|\w*adam\w*|adamax|rmsprop|ada(grad|delta)|lion|lbfgs", (0, 1), "lr", float),
    (r"(?i)\w*dropout(\d?d)?", (0, 1), "dropout", float),
    (r"clip_grad_norm_?", (1,), "max_norm", float),
    (r"DataLoader", (1,), "batch_size", int),
    (r"KNeighbors(Classifier|Regressor)", (0,), "n_neighbors", int),
)
"""Names of calls, the places of one argument, its name, and the type that it must have."""
_COUNTED = {"epoch": "epochs", "iteration": "iterations", "iter": "iters", "step": "steps"}
_LEARNS = re.compile(r"backward|step|minimize|fit|apply_gradients|(train|update)(_\w+)?")
_KEPT = re.compile(
    r"(?i)split|fold|^make_|^load_|^read_|^fetch_|score|metric|dataset|sample$|choice|loss|criterion"
)
"""Names of calls that make, divide or weigh data, or measure on it."""
_SCORES = re.compile(
    r"(?i)(^|_)(test|val|valid|validation|eval|dev)(_|$)|(test|val)_?(loader|dl|ds)"
)
"""Names of what a script scores with, such as ``test_loader``."""
_DRAWN = {"plt", "pyplot", "ax", "axs", "axes", "fig", "sns"}
_SEEDS = re.compile(r"((set|manual|random)_)*seed(_all|_everything)?|PRNGKey")


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the functions that train, by their names."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [function for function in functions if _TRAINS.fullmatch(function.name)]


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of the module and of the functions that train, outside any block."""
    yield from top_statements(tree)
    for function in _functions(tree):
        yield from function.body


def _locals(tree: ast.Module) -> Iterator[Constant]:
    for function in _functions(tree):
        inside = list(ast.walk(function))
        stored = Counter(
            node.id
            for node in inside
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        )
        other = {node.arg for node in inside if isinstance(node, ast.arg)}
        for node in inside:
            if isinstance(node, ast.Global | ast.Nonlocal):
                other |= set(node.names)
        for statement in function.body:
            for name, value in assignments(statement):
                if stored[name] == 1 and name not in other and not name.startswith("_"):
                    yield from constants_in(name, value, owner=function.name)


def _entries(tree: ast.Module) -> Iterator[Constant]:
    stored = Counter(
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
    )
    for statement in _statements(tree):
        match statement:
            case ast.Assign(
                targets=[
                    ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key)))
                ],
                value=value,
            ) if key.isidentifier() and SETTINGS.search(owner):
                if stored[ast.unparse(statement.targets[0])] == 1:
                    yield from constants_in(key, value, owner=owner)


def _arguments(tree: ast.Module) -> Iterator[Constant]:
    """Yield the numbers that calls receive: seeds, and those that their names or places tell."""
    scoring = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _SCORES.search(ast.unparse(node.targets[0]))
        for inner in ast.walk(node.value)
    }
    for call, callee in _calls(tree):
        if _SEEDS.fullmatch(callee[-1]) and len(call.args) == 1:
            name = "_".join(callee) + ("" if "seed" in callee[-1] else "_seed")
            yield from _numbers(name, call.args[0], "call", int)
        if call in scoring or _KEPT.search(callee[-1]) or callee[0] in _DRAWN:
            continue
        yield from _placed(call, callee[-1])
        for keyword in call.keywords:
            if keyword.arg and _ARGUMENT.fullmatch(keyword.arg):
                yield from _numbers(keyword.arg, keyword.value, callee[-1], int, float)


_MORE = re.compile(
    r"(?i)rng|n_steps|n_epochs|gae_lambda|\w+_coef|iterations|clip_range\w*|buffer_size|ccp_alpha"
    r"|learning_starts|train_freq|gradient_steps|target_update_interval|exploration_\w+|rank|r"
    r"|lora_\w+|temperature|label_smoothing|drop_(path|rate)\w*|\w+_dropout|embed_dim|num_filters"
    r"|filters|kernel_size|subsample\w*|min_(child|samples)\w*|num_round|n_clusters|power_t"
    r"|max_leaf\w*|early_stopping_rounds|scale_pos_weight|bagging_freq|path_smooth|init_std"
)
_MORE_SEEDS = re.compile(
    r"(?i)(\w+_)?seed(_\w+)?|\w+seeds?|default_rng|RandomState|Random|PCG64(DXSM)?|MT19937|Philox"
    r"|SFC64|SeedSequence|enable_full_determinism"
)
_NO_SEEDS = re.compile(r"(?i)seed_?(words|point|size)\w*")


def _more_arguments(tree: ast.Module) -> Iterator[Constant]:
    """Yield the seeds and numbers of calls that :func:`_arguments` does not know, and the entries
    of dictionaries of settings in functions that train."""
    for function in _functions(tree):
        for name, value in (pair for one in function.body for pair in assignments(one)):
            if isinstance(value, ast.Dict) and (SETTINGS.search(name) or "hyper" in name):
                for key, entry in zip(value.keys, value.values, strict=True):
                    if isinstance(key, ast.Constant) and str(key.value).isidentifier():
                        yield from constants_in(str(key.value), entry, owner=name)
    chained = [
        (node, [node.func.attr])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
    ]
    calls = [*_calls(tree), *chained]
    kept = {each for call, callee in calls if _KEPT.search(callee[-1]) for each in ast.walk(call)}
    for call, callee in calls:
        if call in kept or callee[0] in _DRAWN:
            continue
        is_key = callee[-1] == "key" and "random" in callee
        is_seed = _MORE_SEEDS.fullmatch(callee[-1]) and not _NO_SEEDS.match(callee[-1])
        if (is_key or is_seed) and call.args:
            name = "_".join(callee) + ("" if re.search(r"(?i)seeds?(_|$)", callee[-1]) else "_seed")
            yield from _numbers(name, call.args[0], "call", int)
        for keyword in call.keywords:
            is_named = keyword.arg is not None and _MORE.fullmatch(keyword.arg)
            is_reset = keyword.arg == "seed" and callee[-1] in {"reset", "seed_everything"}
            if keyword.arg and (is_named or is_reset):
                yield from _numbers(keyword.arg, keyword.value, callee[-1], int, float)


def _placed(call: ast.Call, callee: str) -> Iterator[Constant]:
    """Yield the number that a call receives where its place says what it is."""
    if any(isinstance(one, ast.Starred) for one in call.args):
        return
    for pattern, places, name, kind in _PLACED:
        named = {one.arg for one in call.keywords}
        if re.fullmatch(pattern, callee) and not named & {name, None}:
            numbers = [
                one
                for place, node in enumerate(call.args)
                for one in _numbers(name, node, callee, kind)
                if place in places and one.node is node
            ]
            yield from numbers if len(numbers) == 1 else ()


def _loops(tree: ast.Module) -> Iterator[Constant]:
    """Yield how often loops run that train and that nothing else is around."""
    for statement in _statements(tree):
        match statement:
            case ast.For(
                target=ast.Name(id=counter), iter=ast.Call(func=ast.Name(id="range"), args=[end])
            ) if counter in _COUNTED and any(
                _LEARNS.fullmatch(callee[-1]) for _, callee in _calls(statement)
            ):
                yield from _numbers(_COUNTED[counter], end, "range", int)


def _numbers(name: str, node: ast.expr, owner: str, *kinds: type) -> Iterator[Constant]:
    """Yield the constants that an expression holds of these types; a boolean is no number."""
    for one in constants_in(name, node, owner=owner):
        if type(one.value) in kinds:
            yield one


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield each call of a dotted name, with the name's parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            parts = ast.unparse(node.func).split(".")
            if all(part.isidentifier() for part in parts):
                yield node, parts
