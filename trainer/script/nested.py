"""Find settings of a training script that are no constants of its module.

They are

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
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from trainer.script.constants import (
    SETTINGS,
    Constant,
    assignments,
    constants_in,
    top_statements,
)

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


def nested(
    tree: ast.Module, taken: Collection[str], slots: Sequence[range] = ()
) -> dict[str, Constant]:
    """Return these settings by their names in a menu, in the order of the text.

    :param taken: names of the module's own constants.
    :param slots: lines whose code is replaced as a whole, and so has no settings.
    """
    everywhere = [
        *_locals(tree),
        *_entries(tree),
        *_arguments(tree),
        *_seeds(tree),
        *_loops(tree),
    ]
    found = [one for one in everywhere if not any(one.line in lines for lines in slots)]
    found.sort(key=lambda one: (one.node.lineno, one.node.col_offset))
    times = Counter(one.name for one in found)
    times_owned = Counter((one.owner, one.name) for one in found)
    named: dict[str, Constant] = {}
    for one in found:
        is_free = times[one.name] == 1 and one.name not in taken
        name = one.name if is_free else f"{one.owner}_{one.name}"
        if times_owned[one.owner, one.name] == 1 and name not in {*taken, *named}:
            named[name] = replace(one, name=name)
    return named


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
    scoring = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _SCORES.search(ast.unparse(node.targets[0]))
        for inner in ast.walk(node.value)
    }
    for call, callee in _calls(tree):
        if call in scoring or _KEPT.search(callee[-1]) or callee[0] in _DRAWN:
            continue
        yield from _placed(call, callee[-1])
        for keyword in call.keywords:
            if keyword.arg and _ARGUMENT.fullmatch(keyword.arg):
                found = constants_in(keyword.arg, keyword.value, owner=callee[-1])
                yield from (one for one in found if type(one.value) in {int, float})


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
                for one in constants_in(name, node, owner=callee)
                if place in places and one.node is node and type(one.value) is kind
            ]
            yield from numbers if len(numbers) == 1 else ()


def _seeds(tree: ast.Module) -> Iterator[Constant]:
    for call, callee in _calls(tree):
        if _SEEDS.fullmatch(callee[-1]) and len(call.args) == 1:
            name = "_".join(callee) + ("" if "seed" in callee[-1] else "_seed")
            found = constants_in(name, call.args[0], owner="call")
            yield from (one for one in found if type(one.value) is int)


def _loops(tree: ast.Module) -> Iterator[Constant]:
    """Yield how often loops run that train and that nothing else is around."""
    for statement in _statements(tree):
        match statement:
            case ast.For(
                target=ast.Name(id=counter), iter=ast.Call(func=ast.Name(id="range"), args=[end])
            ) if counter in _COUNTED and any(
                _LEARNS.fullmatch(callee[-1]) for _, callee in _calls(statement)
            ):
                found = constants_in(_COUNTED[counter], end, owner="range")
                yield from (one for one in found if type(one.value) is int)


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield each call of a dotted name, with the name's parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            parts = ast.unparse(node.func).split(".")
            if all(part.isidentifier() for part in parts):
                yield node, parts
