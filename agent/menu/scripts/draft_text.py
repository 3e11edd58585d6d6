"""Write a drafted menu as TOML, for a person to prune."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

from agent.menu.code_knob import names_used
from agent.menu.formulas import Constraint
from agent.menu.scripts.draft import Draft
from agent.menu.scripts.option import Option
from agent.menu.scripts.printed.lines import NUMBER
from agent.menu.scripts.sorting import Given, Left, Turned
from autoresearch.plain_text import plain
from autoresearch.values import Scalar
from trainer.script.regions import Region
from trainer.spec import BITS_PER_BYTE, BPB

USUAL_HORIZON = 1000
MOST_DIGITS = 12
MOST_DOC = 160
_COMMAND = "  # the command that trains"


def text_of(draft: Draft) -> str:
    """Return the menu's TOML of a draft."""
    return _Text(draft).whole()


class _Text:
    """Parts of the TOML, in their order."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def whole(self) -> str:
        """Return the whole menu."""
        blocks = [
            self._head(),
            self._trainer(),
            *(_knob_lines(one) for one in self._draft.knobs),
            *(_slot_lines(one) for one in self._draft.slots),
            _check_lines() if self._draft.slots else [],
            list(self._constants()),
            *(_constraint_lines(one) for one in self._draft.constraints),
            list(self._campaign()),
            list(self._replaced()),
            list(self._left_over()),
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"

    # --- its parts ------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        name = self._draft.script.path.name
        return [
            f"# Drafted from {plain(name)}, which was parsed and not run. Prune it: remove knobs",
            "# that need no search, narrow the others, and resolve every TO DO.",
            *(f"# TO DO: {one}" for one in self._draft.to_do),
            *(f"# NOTE: {one}" for one in self._draft.notes),
            f"name = {_toml(self._name())}",
            f"doc = {_toml(f'the options of {plain(name)}')}",
        ]

    def _name(self) -> str:
        path = self._draft.script.path.resolve()
        parts = [path.parent.name] if path.stem in {"main", "train"} else []
        return plain("-".join([*parts, path.stem]))[:64].strip() or "script"

    def _trainer(self) -> list[str]:
        score, curve = self._draft.score, self._draft.curve
        pattern = score.pattern if score else f"TO DO {NUMBER}"
        unit = (score.label if score else "") or "score"
        if unit == BITS_PER_BYTE:  # only a script that counts bytes may claim this unit
            unit = f"{unit}, as printed"
        called = self._draft.main
        python = "{python}" if called or not shutil.which("python") else "python"
        lines = [
            "[trainer]",
            "command = [",
            f"    {_toml(python)},",
            *(
                ['    "-m",', f"    {_toml(self._draft.module)},"]
                if self._draft.module
                else [f"    {_toml(self._draft.script.path.name)},"]
            ),
        ]
        valued = list(self._words())
        rest = [word for word in self._draft.script.words if (word, _COMMAND) not in valued]
        lines += [f"    {_toml(_braced(word))}," for word in rest]
        lines += [f"    {_toml(word)},{note}" for word, note in valued]
        lines += ["]", f"directory = {_toml(self._draft.directory)}"]
        if called:
            lines.append(f"main = {_toml(called)}  # called in a fork of a server that has loaded:")
            lines.append(f"preload = [{', '.join(map(_toml, self._draft.preload))}]")
        if self._draft.above:
            lines.append(f"reads = [{', '.join(map(_toml, self._draft.above))}]")
        if env := dict(self._variables()):
            said = ", ".join(f"{name} = {_toml(value)}" for name, value in env.items())
            lines.append(f"env = {{ {said} }}")
        if self._draft.script.means == "edit":
            lines.append('set_by = "edit"')
            said = ", ".join(
                f"{one.option.name} = {_toml(one.template)}" for one in self._draft.given
            )
            lines += [f"edits = {{ {said} }}"] if said else []
        line = f"  # line {score.line}" if score and score.line else ""
        lines.append(f'score = {{ pattern = {_literal(pattern)}, take = "last" }}{line}')
        lines.append(f"unit = {_toml(unit)}")
        lines.append(
            f'direction = "{"maximise" if score and score.more_is_better else "minimise"}"'
        )
        lines += self._digits()
        if curve:
            lines.append(f"curve = {{ pattern = {_literal(curve.pattern)} }}  # line {curve.line}")
        return lines

    def _digits(self) -> list[str]:
        """Return as many decimals as the script prints, but no fewer than usual: a mean of several
        runs is finer than one printed score."""
        printed = self._draft.score and self._draft.score.decimals
        if not printed or printed <= BPB.digits:
            return []
        return [f"digits = {min(printed, MOST_DIGITS)}  # as printed"]

    def _words(self) -> Iterator[tuple[str, str]]:
        """Yield the words of the command that set a value, each with a comment."""
        command = ""
        for place in sorted(self._draft.places, key=lambda one: one.option.command != ""):
            option = place.option
            if not option.argument or isinstance(place, Left):
                continue
            if option.command != command:
                command = option.command
                yield command, _COMMAND
            word = option.argument
            if isinstance(place, Given):
                word = word.replace(f"{{{option.name}}}", place.template)
            yield word, f"  # line {option.line}"

    def _variables(self) -> Iterator[tuple[str, str]]:
        if self._draft.above:
            yield "PYTHONPATH", ".."
        for place in self._draft.places:
            if place.option.variable and not isinstance(place, Left):
                own = f"{{{place.option.name}}}"
                yield place.option.variable, place.template if isinstance(place, Given) else own

    def _constants(self) -> Iterator[str]:
        if self._draft.constants:
            yield "[constants]"
        for one in self._draft.constants:
            yield f"{one.option.name} = {_toml(one.value)}  # line {one.option.line}: {one.why}"

    def _campaign(self) -> Iterator[str]:
        steps = any("{steps}" in one.template for one in self._draft.given)
        seconds = any("{seconds}" in one.template for one in self._draft.given)
        yield "[campaign]"
        if steps:
            own = "".join(f"; {plain(each)}" for each in self._draft.lengths)
            yield f'budget = "{self._draft.steps} steps"  # the value of {{steps}}{own}'
            horizon = self._draft.given_by_hand("{horizon}") or max(
                USUAL_HORIZON, self._draft.steps
            )
            if any("{horizon}" in one.template for one in self._draft.given):
                yield f"horizon_steps = {horizon}  # the value of {{horizon}}"
        elif seconds:
            yield 'budget = "300 seconds"  # the value of {seconds}'
        else:
            yield 'budget = "1 run"  # the script ends by itself'

    def _replaced(self) -> Iterator[str]:
        if self._draft.given:
            yield "# Set for each trial, instead of the script's own values:"
        for one in self._draft.given:
            yield f"#   {_as_it_is(one.option)}: {plain(one.why)}"

    def _left_over(self) -> Iterator[str]:
        if self._draft.left:
            yield "# Left at the script's own values:"
        for place in self._draft.left:
            yield f"#   {_as_it_is(place.option)}: {plain(place.why)}"


# --- values, patterns, a knob, a constraint ------------------------------------------------------


def _knob_lines(one: Turned) -> list[str]:
    """Return a knob's table."""
    option, knob = one.option, one.knob
    said = _doc_of(option)
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


def _check_lines() -> list[str]:
    """Return a comment with the table of a check, which only a person can write."""
    return [
        "# Code in a region can reach the score that the script prints. To prevent it, score what",
        "# a run leaves in {out} by a second command, which is never edited:",
        "# [score.check]",
        '# command = ["python", "check.py", "{out}"]',
        f"# pattern = 'val loss {NUMBER}'",
    ]


def _doc_of(option: Option) -> str:
    """Return the script's help for an option, on one line."""
    return " ".join(plain(option.doc).split())[:MOST_DOC]


def _constraint_lines(one: Constraint) -> list[str]:
    """Return a constraint's table."""
    return ["[[constraints]]", f"expr = {_toml(one.expr)}", f"doc = {_toml(one.doc)}"]


def _braced(word: str) -> str:
    """Escape the braces of a literal word."""
    return word.replace("{", "{{").replace("}", "}}")


def _as_it_is(option: Option) -> str:
    """Return ``max_iters = 5000  (line 12)``."""
    default = "" if option.default is None else f" = {_short(option.default)}"
    return f"{option.name}{default}  (line {option.line})"


def _short(value: Scalar) -> str:
    """Return a value, a long one cut."""
    text = _toml(value)
    return plain(text if len(text) <= 60 else f"{text[:57]}...")


def _literal(pattern: str) -> str:
    """Return a pattern as a TOML string, without escapes if possible."""
    plain_enough = "'" not in pattern and pattern.isprintable()
    return f"'{pattern}'" if plain_enough else _toml(pattern)


def _toml(value: Scalar) -> str:
    """Return a string, number or boolean as TOML, which equals its JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
