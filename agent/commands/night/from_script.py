"""``autoresearch menu from-script``: draft a menu from a training script."""

import ast
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.commands.options import JsonOption
from agent.menu.files import load_menu, parse_menu
from agent.menu.scripts.draft import Draft, draft_of
from agent.menu.scripts.draft_text import toml_of
from agent.menu.scripts.metrics import (
    Candidate,
    candidates,
    curve_in,
    direction_of,
    in_files,
    last_step,
    scored,
)
from agent.menu.scripts.reading import modules_beside, parses, script_of, text_of
from agent.menu.scripts.reported import Reported, reported
from agent.menu.scripts.start import start_of
from agent.menu.scripts.tree import evaluating, lines_in
from agent.menu.scripts.update import write_draft
from agent.session.console import answer
from autoresearch.errors import MenuError
from autoresearch.safe_text import plain
from autoresearch.words import counted, json_text
from trainer.schema import Direction, TrialFailed

if TYPE_CHECKING:
    from agent.session.dry_start import Tried
    from agent.session.score_audit import ScoreFinding

NOT_STARTED = 3
"""Exit code if the draft was written and its default config failed."""
SHOWN = 6
"""Candidates for the score to show."""


@dataclass(frozen=True, slots=True)
class DraftWishes:
    """The answers that were given as options."""

    set_by: str | None
    score: str | None
    direction: str | None
    search: tuple[str, ...]


ScriptArgument = Annotated[
    Path, typer.Argument(metavar="SCRIPT", help="The Python file that trains.")
]
UsualArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGUMENT",
        help="After --: the script's usual arguments, which become the menu's defaults.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File to write or update. Default: standard output."),
]
ScoreOption = Annotated[
    str | None,
    typer.Option(help="Words before the score in its line, or FILE:KEY. Default: asked."),
]
DirectionOption = Annotated[
    str | None,
    typer.Option(
        metavar="minimise|maximise",
        help="Which scores are better. Default: by the metric's name, else asked.",
    ),
]
SearchOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Make an option a knob whatever its name; repeatable."),
]
SetByOption = Annotated[
    str | None,
    typer.Option(
        "--set-by",
        metavar="args|env|edit",
        help="How values reach the script: as arguments, in the environment, or as "
        "constants in a copy. Default: the first that fits.",
    ),
]
DryStartOption = Annotated[
    bool,
    typer.Option(
        "--dry-start/--no-dry-start",
        help="Run the default config once in the sandbox before writing a file.",
    ),
]


def from_script(
    script: ScriptArgument,
    arguments: UsualArguments = None,
    *,
    out: OutOption = None,
    score: ScoreOption = None,
    direction: DirectionOption = None,
    search: SearchOption = None,
    set_by: SetByOption = None,
    try_it: DryStartOption = True,
    as_json: JsonOption = False,
) -> None:
    """Draft a menu from a training script, or update a draft.

    The script starts in the sandbox until its parser reports its options, and with -o once more
    with the drafted defaults, to find the score in what it prints. A second call for the same file
    keeps what you changed there. Exit code 3: the default config failed.
    """
    if direction not in {None, "minimise", "maximise"}:
        raise MenuError(f"--direction is {json_text(direction)}; give minimise or maximise")
    wishes = DraftWishes(set_by, score, direction, tuple(search or ()))
    is_asked = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    draft, found, tried = _found(script, arguments or [], out if try_it else None, out, wishes)
    draft = _with_score(draft, found, wishes, is_asked=is_asked)
    text, kept = toml_of(draft), list[str]()
    if not draft.to_do:
        parse_menu(text, f"drafted from {script}")
    if out is None and not as_json:
        typer.echo(text, nl=False)
        return
    if out is not None:
        text, kept = write_draft(out, text)
    doubts = _doubts(out) if out is not None and tried and not draft.to_do else []
    fields = _report(draft, out, found) | {"kept": kept, "toml": text}
    fields["doubts"] = [one.model_dump() for one in doubts]
    fields["dry_start"] = tried and _sentence(tried, draft)
    answer(fields, _lines(draft, out, tried, kept, doubts), as_json=as_json, indent=2)
    if tried is not None and not tried.is_usable:
        raise typer.Exit(NOT_STARTED)


def _doubts(menu: Path) -> list["ScoreFinding"]:
    """Return what is wrong with the score of a written menu, as far as its text tells."""
    from agent.session.own_trainer import script_folder  # noqa: PLC0415 (slow to load)
    from agent.session.score_audit import static_findings  # noqa: PLC0415

    table = load_menu(str(menu)).trainer
    return list(static_findings(table, script_folder(str(menu), table))) if table else []


def _found(
    script: Path, words: list[str], tried_at: Path | None, out: Path | None, wishes: DraftWishes
) -> tuple[Draft, list[Candidate], "Tried | None"]:
    """Return a draft, the candidates for its score, and its dry start if there is one.

    :param tried_at: the menu's path, if its default config is to run.
    """
    draft = _drafted(script, words, out, wishes)
    lines = [line for tree in _trees(draft) for line in lines_in(tree)]
    draft = replace(draft, curve=curve_in(lines))
    found = [replace(one, times=0) for one in candidates(lines) if one.direction is not None]
    evaluated = [
        line for tree in _trees(draft) for one in evaluating(tree) for line in lines_in(one)
    ]
    found = scored(found, evaluated)
    if tried_at is None or any(one.option.required for one in draft.left):
        return draft, found, None
    from agent.session.dry_start import dry_start  # noqa: PLC0415 (slow to load)

    unscored = replace(draft, score=_UNKNOWN, direction="minimise")
    menu = parse_menu(toml_of(unscored), f"drafted from {script}")
    tried = dry_start(str(tried_at), menu)
    draft, found = _seen(draft, found, tried)
    return draft, scored(found, evaluated), tried


def _drafted(path: Path, words: list[str], out: Path | None, wishes: DraftWishes) -> Draft:
    """Return the draft of a menu that can be read, without a score.

    :raises MenuError: if no option of the script becomes a knob.
    """
    source, tree = text_of(path)
    found = Reported(words=tuple(words), given=tuple(words))
    if wishes.set_by in {None, "args"} and parses(tree, path):
        from agent.session.dry_start import report_options  # noqa: PLC0415 (slow to load)

        found = reported(report_options(start_of(path, tree), words), words, source)
    draft = draft_of(script_of(path, found, wishes.set_by), out, wishes.search)
    if not draft.knobs:
        why = f" ({draft.left[0].option.name}: {draft.left[0].why})" if draft.left else ""
        raise MenuError(
            f"{path} has {counted(len(draft.places), 'option')} and none whose name and default "
            f"say how far it could be turned{why}; name some with --search, or write the menu's "
            "knobs by hand: `autoresearch menu new` shows how"
        )
    return draft


def _trees(draft: Draft) -> list[ast.Module]:
    """Return the syntax trees of a script and of the modules beside it."""
    tree = draft.script.tree
    return [tree, *modules_beside(draft.script.path, tree).values()]


_UNKNOWN = Candidate("autoresearch-dry-start", "score", "minimise")


def _seen(draft: Draft, found: list[Candidate], tried: "Tried") -> tuple[Draft, list[Candidate]]:
    """Return the draft and the candidates with what a run printed and wrote."""
    if not tried.is_usable:
        return draft, found
    printed = [one for one in tried.lines if "\x1e" not in one]
    seen = candidates(printed) + in_files(tried.lines)
    known = [one for one in seen if one.direction is not None]
    label = curve_in(printed) or draft.curve
    reached = None
    if isinstance(tried.result, TrialFailed) and tried.result.status == "timeout":
        reached = last_step(printed, label)
    # A number without a known metric is less than a metric that is not printed yet.
    later = found if reached is not None and not any(not one.is_training for one in known) else []
    seen = sorted([*seen, *later], key=lambda one: one.rank)
    return replace(draft, curve=label, reached=reached), seen or found


def _with_score(
    draft: Draft, found: Sequence[Candidate], wishes: DraftWishes, *, is_asked: bool
) -> Draft:
    """Return the draft with the score that a person names or chooses, else the most likely one."""
    chosen = found[0] if found else None
    if wishes.score is not None:
        chosen = next((one for one in found if wishes.score in one.labels), None)
        file, colon, key = wishes.score.rpartition(":")
        if chosen is None and colon and Path(file).suffix in {".json", ".jsonl", ".csv", ".tsv"}:
            chosen = Candidate(key, key, direction_of(key), file=file)
        chosen = chosen or Candidate(wishes.score, wishes.score, direction_of(wishes.score))
    elif is_asked and len(found) > 1:
        for number, one in enumerate(found[:SHOWN], 1):
            shown = {"minimise": "lower is better", "maximise": "higher is better"}
            known = shown.get(one.direction or "", "direction unknown")
            said = f"{known}, {counted(one.times, 'time')}"
            typer.echo(f"{number}. {plain(one.line or one.label)[:120]}  ({said})")
        which = 0
        while not 1 <= which <= min(SHOWN, len(found)):
            which = typer.prompt("Which number is the score?", 1, type=int)
        chosen = found[which - 1]
    if chosen is None:
        return draft
    better = wishes.direction or chosen.direction
    if better is None and is_asked:
        is_more = typer.confirm(f"Is a larger {plain(chosen.name)} better?")
        better = "maximise" if is_more else "minimise"
    directions: dict[str | None, Direction] = {"minimise": "minimise", "maximise": "maximise"}
    return replace(draft, score=chosen, direction=directions.get(better))


def _sentence(tried: "Tried", draft: Draft) -> str:
    score = draft.score
    if score is None or not score.times or isinstance(tried.result, TrialFailed):
        return tried.sentence
    return f"{tried.sentence}; {plain(score.name)} was {score.last:g}"


def _lines(
    draft: Draft,
    out: Path | None,
    tried: "Tried | None",
    kept: Sequence[str],
    doubts: Sequence["ScoreFinding"],
) -> Iterator[str]:
    command = shlex.join(["autoresearch", "loop", "--menu", str(out)])
    yield (
        f"wrote {out}: {counted(len(draft.knobs), 'knob')}, "
        f"{counted(len(draft.constants), 'constant')}, "
        f"{counted(len(draft.given), 'value')} given, {len(draft.left)} left as they are"
    )
    if kept:
        yield f"kept from your changes: {', '.join(kept)}"
    yield from (f"to do: {one}" for one in draft.to_do)
    yield from (f"note: {one}" for one in draft.notes)
    yield from (f"score: {one}" for one in doubts)
    if draft.length:
        yield f"length: a trial has {draft.steps} steps; {draft.length}"
    if draft.score is not None and draft.direction is not None:
        shown = f" in the line {draft.score.line[:120]!r}" if draft.score.line else ""
        yield f"score: {draft.score.label!r}{shown}, {draft.direction}d"
    yield f"prune it, then search with:\n  {command}"
    if tried is not None:
        yield f"tried: {_sentence(tried, draft)}"


def _report(draft: Draft, out: Path | None, found: Sequence[Candidate]) -> dict[str, object]:
    shown: list[dict[str, object]] = [
        {"label": one.label, "name": one.name, "direction": one.direction, "times": one.times}
        | {"last": one.last if one.times else None, "line": one.line, "file": one.file}
        for one in found[: 2 * SHOWN]
    ]
    return {
        "script": str(draft.script.path),
        "set_by": draft.script.means,
        "knobs": [one.model_dump(mode="json") for one in draft.knobs],
        "constants": draft.constants,
        "score": draft.score and draft.score.label,
        "direction": draft.direction,
        "candidates": shown,
        "length": draft.length,
        "given": {one.option.name: one.template for one in draft.given},
        "left": {one.option.name: one.why for one in draft.left},
        "constraints": [one.expr for one in draft.constraints],
        "to_do": draft.to_do,
        "notes": draft.notes,
        "menu": str(out) if out else None,
    }
