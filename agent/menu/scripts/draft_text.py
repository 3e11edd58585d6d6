"""Write a drafted menu as TOML, for a person to read and prune."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from agent.menu.code_knob import names_used
from agent.menu.knobs import Knob
from agent.menu.scripts.draft import USUAL_HORIZON, Draft
from agent.menu.scripts.option import Option
from agent.menu.scripts.sorting import Place
from agent.menu.scripts.start import preloadable
from autoresearch.safe_text import plain
from autoresearch.words import toml_text
from trainer.schema import BITS_PER_BYTE, BPB
from trainer.script.regions import Region

MOST_DIGITS = 12
MOST_DOC = 120
_WIDTH = 98


def toml_of(draft: Draft) -> str:
    """Return the menu's TOML of a draft."""
    file, path = plain(draft.script.path.name), draft.script.path.resolve()
    named = [path.parent.name, path.stem] if path.stem in {"main", "train"} else [path.stem]
    name = plain("-".join(named))[:64].strip() or "script"
    constants = [(one.option, one.why) for one in draft.places if one.use == "constant"]
    blocks = [
        [
            f"# Drafted from {file}. Delete the knobs that need no search, and narrow the others.",
            *(_comment(f"TO DO: {one}") for one in draft.to_do),
            *(_comment(f"NOTE: {one}") for one in draft.notes),
            f"name = {toml_text(name)}",
        ],
        _trainer(draft),
        ["[knobs]", *(_knob_line(one.option, one.knob) for one in draft.places if one.knob)],
        *(_slot_lines(one) for one in draft.slots),
        _CHECK_LINES if draft.slots else (),
        ["[constants]", *_constant_lines(constants)] if constants else (),
        *(
            ["[[constraints]]", f"expr = {toml_text(one.expr)}", f"doc = {toml_text(one.doc)}"]
            for one in draft.constraints
        ),
        list(_campaign(draft)),
        list(_unset(draft.left)),
    ]
    return "\n".join("\n".join(block) + "\n" for block in blocks if block)


def _comment(text: str) -> str:
    return "\n".join(f"# {one}" for one in textwrap.wrap(plain(text), _WIDTH))


def _trainer(draft: Draft) -> list[str]:
    lines = ["[trainer]", *_command(draft), f"directory = {toml_text(draft.directory)}"]
    if draft.main:
        preload = ", ".join(map(toml_text, preloadable(draft.script.tree)))
        lines += [f"main = {toml_text(draft.main)}", f"preload = [{preload}]"]
    if draft.start.reads:
        lines.append(f"reads = [{', '.join(map(toml_text, draft.start.reads))}]")
    if env := draft.env:
        said = ", ".join(f"{name} = {toml_text(value)}" for name, value in env.items())
        lines.append(f"env = {{ {said} }}")
    if draft.script.means == "edit":
        lines.append('set_by = "edit"')
        said = ", ".join(f"{one.option.name} = {toml_text(one.template)}" for one in draft.given)
        lines += [f"edits = {{ {said} }}"] if said else []
    lines += _score(draft)
    if draft.curve:
        lines.append(f"curve = {toml_text(draft.curve)}")
    return lines


def _command(draft: Draft) -> list[str]:
    """Return the command as one text over several lines, or as a list if a word needs quotes."""
    python = "{python}" if draft.main or not shutil.which("python") else "python"
    start = ["-m", draft.start.module] if draft.start.module else [draft.start.script]
    kept = [word.replace("{", "{{").replace("}", "}}") for word in draft.script.words]
    words = [python, *start, *kept, *_words(draft)]
    if any(one != plain(one) or set(one) & set("\"'\\#") or one.split() != [one] for one in words):
        return [f"command = [{', '.join(map(toml_text, words))}]"]
    whole = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = whole.wrap(" ".join(words))
    if len(lines) == 1:
        return [f'command = "{lines[0]}"']
    return ['command = """', *lines, '"""']


def _words(draft: Draft) -> Iterator[str]:
    """Yield the words of the command that set a value, those of a subcommand behind its name."""
    command = ""
    for place in sorted(draft.places, key=lambda one: one.option.command != ""):
        option = place.option
        if not option.argument or place.use == "left":
            continue
        if option.command != command:
            command = option.command
            yield command
        value = place.template or f"{{{option.name}}}"
        yield option.argument.replace(f"{{{option.name}}}", value)


def _score(draft: Draft) -> Iterator[str]:
    score = draft.score
    if score is None:
        yield 'score = "TO DO"'
        yield 'direction = "TO DO"'
        return
    if score.file:
        yield f"score = {{ file = {toml_text(score.file)}, key = {toml_text(score.label)} }}"
    else:
        yield f"score = {toml_text(score.label)}"
    yield f'direction = "{draft.direction or "TO DO"}"'
    unit = plain(score.name)[:40] or "score"
    if unit == BITS_PER_BYTE:  # only a script that counts bytes may claim this unit
        unit = f"{unit}, as printed"
    if score.file or unit != score.label:
        yield f"unit = {toml_text(unit)}"
    # A mean of several runs is finer than one printed score, so no fewer decimals than usual.
    if score.decimals > BPB.digits:
        yield f"digits = {min(score.decimals, MOST_DIGITS)}"


def _campaign(draft: Draft) -> Iterator[str]:
    yield "[campaign]"
    if draft.gives("{steps}"):
        yield f'budget = "{draft.steps} steps"' + (f"  # {draft.length}" if draft.length else "")
        if draft.gives("{horizon}"):
            lengths = [one.option.default for one in draft.given if one.template == "{horizon}"]
            own = lengths[0] if isinstance(lengths[0], int) else USUAL_HORIZON
            yield f"horizon_steps = {max(own, draft.steps)}"
    elif draft.gives("{seconds}"):
        yield 'budget = "300 seconds"'
    else:
        how = (
            "it is not known when it ends"
            if draft.reached is not None
            else "the script ends by itself"
        )
        yield f'budget = "1 run"  # {how}'


def _unset(places: Sequence[Place]) -> Iterator[str]:
    """Yield a comment on the options that the menu does not set, with the reasons."""
    if places:
        yield "# Not searched; `from-script --search NAME` makes one a knob:"
    for one in places:
        default = ""
        if one.option.default is not None:
            text = toml_text(one.option.default)
            default = f" = {plain(text if len(text) <= 60 else f'{text[:57]}...')}"
        yield f"#   {plain(one.option.name)}{default}: {plain(one.why)}"


# --- a constant, a knob, a region ----------------------------------------------------------------


def _constant_lines(constants: Sequence[tuple[Option, str]]) -> Iterator[str]:
    """Yield the constants, those of one reason below it."""
    for reason in dict.fromkeys(why for _, why in constants):
        yield f"# {reason}"
        for option, why in constants:
            if why == reason:
                yield f"{option.name} = {toml_text(option.default)}"


def _knob_line(option: Option, knob: Knob) -> str:
    said = " ".join(plain(option.doc).split())[:MOST_DOC]
    doc = [f"doc = {toml_text(said)}"] if said else []
    parts = [*knob.domain.toml_lines(), f"default = {toml_text(knob.default)}", *doc]
    return f"{knob.name} = {{ {', '.join(parts)} }}"


def _slot_lines(region: Region) -> list[str]:
    """Return the table of a marked region."""
    code = f"'''\n{region.code}\n'''" if "'''" not in region.code else toml_text(region.code)
    names = ", ".join(map(toml_text, names_used(region.code)))
    said = "# what code may use, besides its own and torch's functions"
    return [f"[code.{region.name}]", f"default = {code}", f"names = [{names}]  {said}"]


_CHECK_LINES = (
    "# Code in a region can reach the score that the script prints. To prevent it, score what",
    "# a run leaves in {out} by a second command, which is never edited:",
    "# [score.check]",
    '# command = ["python", "check.py", "{out}"]',
    "# pattern = 'val loss ([-+0-9.eE]+)'",
)
"""A comment with the table of a check, which only a person can write."""
