"""``autoresearch menu from-script``: draft a menu from a training script."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from agent.commands.options import JsonOption
from agent.menu.files import parse_menu
from agent.menu.scripts.by_hand import with_arguments
from agent.menu.scripts.draft import Draft, draft_of
from agent.menu.scripts.draft_text import text_of
from agent.menu.scripts.reading import read_script
from agent.workbench.console import answer
from autoresearch.errors import MenuError
from autoresearch.files import write_new
from autoresearch.words import counted

NOT_STARTED = 3
"""Exit code if the draft was written and its default config failed."""


OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="File to write. Default: standard output."),
]


def from_script(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python file that trains.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENT",
            help="After --: the script's usual arguments, which become the menu's defaults.",
        ),
    ] = None,
    *,
    out: OutOption = None,
    set_by: Annotated[
        str | None,
        typer.Option(
            "--set-by",
            metavar="args|env|edit",
            help="How values reach the script: as arguments, in the environment, or as "
            "constants in a copy. Default: the first that fits.",
        ),
    ] = None,
    try_it: Annotated[
        bool,
        typer.Option(
            "--dry-start/--no-dry-start",
            help="Run the default config once in the sandbox after writing a file.",
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Draft a menu from a training script, which is read and not run.

    Options, defaults from the environment and module constants become knobs with guessed domains;
    printed lines become the patterns of score and curve. Exit code 3: the default config failed.
    """
    draft = _drafted(script, set_by, arguments or [], out)
    if out is None and not as_json:
        typer.echo(text_of(draft), nl=False)
        return
    if out is not None:
        write_new(out, text_of(draft), error=MenuError)
    tried = None
    if try_it and out is not None and not draft.to_do:
        from agent.workbench.dry_start import dry_start  # noqa: PLC0415 (slow to load)

        tried = dry_start(str(out))
    fields = _report(draft, out) | {"dry_start": tried and tried[1]}
    answer(fields, _lines(draft, out, tried), as_json=as_json, indent=2)
    if tried is not None and not tried[0]:
        raise typer.Exit(NOT_STARTED)


def _drafted(script: Path, set_by: str | None, arguments: list[str], out: Path | None) -> Draft:
    """Return the draft of a menu that can be read.

    :raises MenuError: if no option of the script becomes a knob.
    """
    draft = draft_of(with_arguments(read_script(script, set_by, arguments), arguments), out)
    if not draft.knobs:
        why = f" ({draft.left[0].option.name}: {draft.left[0].why})" if draft.left else ""
        raise MenuError(
            f"{script} has {counted(len(draft.places), 'option')} and none whose name and default "
            f"say how far it could be turned{why}; write the menu's knobs by hand"
        )
    parse_menu(text_of(draft), f"drafted from {script}")
    return draft


def _lines(draft: Draft, out: Path | None, tried: tuple[bool, str] | None) -> Iterator[str]:
    command = shlex.join(["autoresearch", "loop", "--menu", str(out)])
    yield (
        f"wrote {out}: {counted(len(draft.knobs), 'knob')}, "
        f"{counted(len(draft.constants), 'constant')}, "
        f"{counted(len(draft.given), 'value')} given, {len(draft.left)} left as they are"
    )
    yield from (f"to do: {one}" for one in draft.to_do)
    yield from (f"note: {one}" for one in draft.notes)
    yield from (f"length: {one}, by the budget under [campaign]" for one in draft.lengths)
    yield f"prune it, then search with:\n  {command}"
    if tried is not None:
        yield f"tried: {tried[1]}"


def _report(draft: Draft, out: Path | None) -> dict[str, object]:
    return {
        "script": str(draft.script.path),
        "set_by": draft.script.means,
        "knobs": [one.model_dump(mode="json") for one in draft.knobs],
        "constants": draft.constants,
        "lengths": draft.lengths,
        "given": {one.option.name: one.template for one in draft.given},
        "left": {one.option.name: one.why for one in draft.left},
        "constraints": [one.expr for one in draft.constraints],
        "to_do": draft.to_do,
        "notes": draft.notes,
        "menu": str(out) if out else None,
        "toml": text_of(draft),
    }
