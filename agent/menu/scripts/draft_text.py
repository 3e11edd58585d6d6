"""Write a drafted menu as TOML, for a person to prune."""

import json
import shutil
from collections.abc import Iterator, Sequence

from agent.menu.code_knob import names_used
from agent.menu.knobs import Knob
from agent.menu.scripts.draft import Draft
from agent.menu.scripts.option import Option
from agent.menu.scripts.printed import NUMBER
from agent.menu.scripts.sorting import Place
from agent.menu.scripts.start import preloadable
from autoresearch.safe_text import plain
from autoresearch.values import Scalar
from trainer.script.regions import Region
from trainer.spec import BITS_PER_BYTE, BPB

USUAL_HORIZON = 1000
MOST_DIGITS = 12
MOST_DOC = 160
_COMMAND = "  # the command that trains"


def text_of(draft: Draft) -> str:
    """Return the menu's TOML of a draft."""
    file, path = plain(draft.script.path.name), draft.script.path.resolve()
    named = [path.parent.name, path.stem] if path.stem in {"main", "train"} else [path.stem]
    name = plain("-".join(named))[:64].strip() or "script"
    constants = [
        f"{one.option.name} = {_toml(one.option.default)}  # line {one.option.line}: {one.why}"
        for one in draft.places
        if one.use == "constant"
    ]
    blocks = [
        [
            f"# Drafted from {file}, which was parsed and not run. Prune it: remove knobs",
            "# that need no search, narrow the others, and resolve every TO DO.",
            *(f"# TO DO: {one}" for one in draft.to_do),
            *(f"# NOTE: {one}" for one in draft.notes),
            f"name = {_toml(name)}",
            f"doc = {_toml(f'the options of {file}')}",
        ],
        _trainer(draft),
        *(_knob_lines(one.option, one.knob) for one in draft.places if one.knob),
        *(_slot_lines(one) for one in draft.slots),
        _CHECK_LINES if draft.slots else (),
        ["[constants]", *constants] if constants else (),
        *(
            ["[[constraints]]", f"expr = {_toml(one.expr)}", f"doc = {_toml(one.doc)}"]
            for one in draft.constraints
        ),
        list(_campaign(draft)),
        list(_unset("# Set for each trial, instead of the script's own values:", draft.given)),
        list(_unset("# Left at the script's own values:", draft.left)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _trainer(draft: Draft) -> list[str]:
    score, curve = draft.score, draft.curve
    pattern = score.pattern if score else f"TO DO {NUMBER}"
    unit = (score.label if score else "") or "score"
    if unit == BITS_PER_BYTE:  # only a script that counts bytes may claim this unit
        unit = f"{unit}, as printed"
    called = draft.main
    python = "{python}" if called or not shutil.which("python") else "python"
    lines = [
        "[trainer]",
        "command = [",
        f"    {_toml(python)},",
        *(
            ['    "-m",', f"    {_toml(draft.start.module)},"]
            if draft.start.module
            else [f"    {_toml(draft.start.script)},"]
        ),
    ]
    valued = list(_words(draft))
    rest = [word for word in draft.script.words if (word, _COMMAND) not in valued]
    lines += [f"    {_toml(word.replace('{', '{{').replace('}', '}}'))}," for word in rest]
    lines += [f"    {_toml(word)},{note}" for word, note in valued]
    lines += ["]", f"directory = {_toml(draft.directory)}"]
    if called:
        lines += [
            f"main = {_toml(called)}  # called in a fork of a server that has loaded:",
            f"preload = [{', '.join(map(_toml, preloadable(draft.script.tree)))}]",
        ]
    if draft.start.reads:
        lines.append(f"reads = [{', '.join(map(_toml, draft.start.reads))}]")
    if env := draft.env:
        said = ", ".join(f"{name} = {_toml(value)}" for name, value in env.items())
        lines.append(f"env = {{ {said} }}")
    if draft.script.means == "edit":
        lines.append('set_by = "edit"')
        said = ", ".join(f"{one.option.name} = {_toml(one.template)}" for one in draft.given)
        lines += [f"edits = {{ {said} }}"] if said else []
    line = f"  # line {score.line}" if score and score.line else ""
    lines += [
        f'score = {{ pattern = {_literal(pattern)}, take = "last" }}{line}',
        f"unit = {_toml(unit)}",
        f'direction = "{"maximise" if score and score.more_is_better else "minimise"}"',
    ]
    # A mean of several runs is finer than one printed score, so no fewer decimals than usual.
    if score and (score.decimals or 0) > BPB.digits:
        lines.append(f"digits = {min(score.decimals or 0, MOST_DIGITS)}  # as printed")
    if curve:
        lines.append(f"curve = {{ pattern = {_literal(curve.pattern)} }}  # line {curve.line}")
    return lines


def _words(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield the words of the command that set a value, each with a comment."""
    command = ""
    for place in sorted(draft.places, key=lambda one: one.option.command != ""):
        option = place.option
        if not option.argument or place.use == "left":
            continue
        if option.command != command:
            command = option.command
            yield command, _COMMAND
        value = place.template or f"{{{option.name}}}"
        word = option.argument.replace(f"{{{option.name}}}", value)
        yield word, f"  # line {option.line}"


def _campaign(draft: Draft) -> Iterator[str]:
    yield "[campaign]"
    if draft.gives("{steps}"):
        own = "".join(f"; {plain(each)}" for each in draft.lengths)
        yield f'budget = "{draft.steps} steps"  # the value of {{steps}}{own}'
        horizon = draft.given_by_hand("{horizon}") or max(USUAL_HORIZON, draft.steps)
        if draft.gives("{horizon}"):
            yield f"horizon_steps = {horizon}  # the value of {{horizon}}"
    elif draft.gives("{seconds}"):
        yield 'budget = "300 seconds"  # the value of {seconds}'
    else:
        yield 'budget = "1 run"  # the script ends by itself'


def _unset(head: str, places: Sequence[Place]) -> Iterator[str]:
    """Yield a comment on the options that the menu does not set, with the reasons."""
    if places:
        yield head
    for one in places:
        default = ""
        if one.option.default is not None:
            text = _toml(one.option.default)
            default = f" = {plain(text if len(text) <= 60 else f'{text[:57]}...')}"
        yield f"#   {one.option.name}{default}  (line {one.option.line}): {plain(one.why)}"


# --- values, patterns, a knob, a region ----------------------------------------------------------


def _knob_lines(option: Option, knob: Knob) -> list[str]:
    """Return a knob's table."""
    said = " ".join(plain(option.doc).split())[:MOST_DOC]
    return [
        f"[knobs.{knob.name}]  # line {option.line}",
        *knob.domain.toml_lines(),
        f"default = {_toml(knob.default)}",
        *([f"doc = {_toml(said)}"] if said else []),
    ]


def _slot_lines(region: Region) -> list[str]:
    """Return the table of a marked region."""
    code = f"'''\n{region.code}\n'''" if "'''" not in region.code else _toml(region.code)
    return [
        f"[code.{region.name}]  # lines {region.begin} to {region.end}",
        f"default = {code}",
        f"names = [{', '.join(map(_toml, names_used(region.code)))}]  # what code may use, besides"
        " its own and torch's functions",
    ]


_CHECK_LINES = (
    "# Code in a region can reach the score that the script prints. To prevent it, score what",
    "# a run leaves in {out} by a second command, which is never edited:",
    "# [score.check]",
    '# command = ["python", "check.py", "{out}"]',
    f"# pattern = 'val loss {NUMBER}'",
)
"""A comment with the table of a check, which only a person can write."""


def _literal(pattern: str) -> str:
    """Return a pattern as a TOML string, without escapes if possible."""
    plain_enough = "'" not in pattern and pattern.isprintable()
    return f"'{pattern}'" if plain_enough else _toml(pattern)


def _toml(value: Scalar | None) -> str:
    """Return a string, number or boolean as TOML, which equals its JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
