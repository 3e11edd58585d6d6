"""Fill in a command for one trial: its words, variables, file of values, and the script's copy."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from autoresearch.words import CODE
from trainer.schema import Command, TrialSpec

PREFIX = "AR_"
"""Prefix of variables that hold values: ``AR_LR``."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A command with all values filled in."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """Variables besides those of every trial."""
    edits: dict[str, Scalar]
    """Constants and slots of the script to rewrite."""
    values: tuple[str, str] | None = None
    """Name and text of the file of values, if they are sent in one."""


def filled(
    spec: TrialSpec, command: Command, out: Path, threads: int, work: Path | None = None
) -> Filled:
    """Return the command of one trial.

    :param out: the trial's directory, as the command sees it.
    :param work: the command's working directory, if it is another.
    :raises SpecError: if it asks for a value that the spec does not have.
    """
    said = spec.config.said
    code = {name: value for name, value in said.items() if name.startswith(CODE)}
    own = {name: value for name, value in said.items() if name not in code}
    known: dict[str, Scalar] = {
        **own,
        "out": str(out),
        "seed": spec.seed,
        "threads": threads,
        "device": spec.device,
    }
    if spec.budget.unit != "run":
        amount = spec.budget.amount
        known[spec.budget.unit] = int(amount) if amount == int(amount) else amount
    horizon = spec.horizon_steps or spec.steps
    if horizon is not None:
        known["horizon"] = horizon
    values = None
    if command.sent_by in {"json", "toml"}:
        name = f"autoresearch-values.{command.sent_by}"
        text = json.dumps(known, indent=1)
        if command.sent_by == "toml":
            # A JSON value is the same in TOML, except for one character that JSON leaves as it is.
            text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in known.items())
        values = name, f"{text}\n"
        known["values"] = str((work or out) / name)
    sent: dict[str, str] = {}
    if command.sent_by == "env":
        sent = {f"{PREFIX}{name.upper()}": str(value) for name, value in known.items()}
    known["python"] = sys.executable  # in words after the first, too, such as those of a shell
    env = {**sent, **{name: _filled(text, known) for name, text in command.env}}
    edits = {**code, **({} if command.slots_only else own)} if command.edited else {}
    whole = {f"{{{name}}}": value for name, value in known.items()}  # keeps its type
    edits |= {name: whole.get(text, _filled(text, known)) for name, text in command.edits}
    words = tuple(word for text in command.argv if (word := _filled(text, known)) or not text)
    return Filled(words, env, edits, values)


def _filled(text: str, known: Mapping[str, Scalar]) -> str:
    parts = []
    for literal, name, spec, _ in Formatter().parse(text):
        parts.append(literal)
        if name is not None:
            if name not in known:
                raise SpecError(
                    f"the command asks for {{{name}}}, which this run has none of; its budget may "
                    "be in another unit"
                )
            if spec:  # the word for true, or the one behind the bar for false
                yes, _, no = spec.partition("|")
                parts.append(yes if known[name] is True else no)
            else:  # as Python prints it, which argparse, click and configurators read
                parts.append(str(known[name]))
    return "".join(parts)


def place_script(command: Command, filling: Filled, work: Path) -> None:
    """Replace the link to a script by a copy: with its constants and slots rewritten, or as it is
    if it lies in a folder, so that it finds and writes in this trial what lies above its folder.

    :raises SpecError: if a constant to rewrite is not in it.
    """
    words = (word for word in filling.argv[1:] if word.endswith(".py"))
    script = next((word for word in words if not word.startswith(("-", "/"))), "")
    in_folder = "/" in script and ".." not in script.split("/")
    name = command.edited or (script if in_folder else "")
    source = Path(command.directory) / name
    if not name or (command.edited is None and not source.is_file()):
        return
    copy = work / name
    # A link to a folder on the way gives way to a folder of links to its entries, one of which can
    # then be replaced in turn.
    folder = copy.parent.relative_to(work)
    for each in (*reversed(folder.parents[:-1]), folder):
        place = work / each
        if place.is_symlink():
            real = place.resolve()
            place.unlink()
            place.mkdir()
            for entry in real.iterdir():
                (place / entry.name).symlink_to(entry)
    copy.unlink(missing_ok=True)
    if command.edited is None:
        copy.write_bytes(source.read_bytes())
        return
    from trainer.script.editing import edited  # noqa: PLC0415 (of use to few)

    copy.write_text(edited(source.read_text("utf-8-sig"), filling.edits), "utf-8")
