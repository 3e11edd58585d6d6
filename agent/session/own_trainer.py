"""Prepare a menu's command to run: find it, hash its script, and collect the paths it may read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from agent.menu.files import ProxyMenu
from agent.menu.trainer_table import CheckTable, TrainerTable, evaluation_text
from agent.search.campaign_start import read_campaign_row
from agent.search.trial import EndHook, StartHook
from autoresearch.errors import CampaignError, MenuError, SandboxError, SpecError
from autoresearch.layout import RESULT_FILE, TRIALS_DIR, nth_trial_id
from autoresearch.safe_text import plain
from autoresearch.words import counted
from trainer.command.open_paths import refuse_credentials, refuse_home
from trainer.command.program import environment_of, find_program
from trainer.command.tree import code_sha256
from trainer.command.workspace import Reach
from trainer.executors.base import Finished
from trainer.machine.environment import allowed_environment
from trainer.schema import Check, Command, ScriptInfo
from trainer.script.editing import edited


@dataclass(frozen=True, slots=True)
class OwnTrainer:
    """The command that a campaign's trials run."""

    table: TrainerTable
    command: Command
    script: ScriptInfo

    @classmethod
    def of(cls, source: str, menu: ProxyMenu, campaign: Path) -> Self | None:
        """Return the trainer of the campaign in this directory, begun or yet to begin; None if the
        built-in trainer trains.

        :param source: the menu's file, beside which the script lies if no campaign has begun.
        :raises CampaignError: if the script that the campaign began with is gone.
        :raises MenuError: if the command cannot run here.
        """
        table = menu.trainer
        if table is None:
            return None
        row = read_campaign_row(campaign)
        if row is not None and row.script is not None:
            directory = Path(row.script.directory)
            if not directory.is_dir():
                raise CampaignError(
                    f"the script of {campaign} lay in {directory}, which is gone; bring it back"
                )
        else:
            _refuse_unfinished(menu)
            directory = script_folder(source, table)
        first_trial = campaign.resolve() / TRIALS_DIR / nth_trial_id(1)
        try:
            command = command_of(table, directory)
            if command.edited is not None:
                _refuse_unknown(directory / command.edited, menu)
            Reach.of(command, first_trial)  # as trials will
            script = _script_in(directory, campaign, table)
        except (SpecError, SandboxError) as error:
            raise MenuError(f"menu {menu.name}: {error}") from error
        return cls(table, command, script)

    def now(self, campaign: Path) -> ScriptInfo:
        """Return the script's current state.

        :raises SpecError: if it cannot be read.
        """
        return _script_in(Path(self.script.directory), campaign, self.table)

    def lines(self) -> Iterator[str]:
        """Yield lines on the command for the user, before anything runs."""
        table, measure = self.table, self.table.measure
        yield f"script    {self.script.directory}, {counted(self.script.files, 'file')} of code"
        if python := self.python_text():
            yield f"python    {python}"
        reached = "; code in its slots could reach it" if table.slots else ""
        yield f"score     {measure.unit}, {measure.better}{reached}"
        if not table.tells_seed:
            yield (
                "          the command is not told {seed}: if every run of a config is the same, "
                "the baseline will show it, and a gain holds for that one draw of chance"
            )
        if measure.unit == "bits per byte":
            yield f"bytes     {table.bytes}, says the menu"

    def details(self) -> Iterator[str]:
        """Yield more lines on the command: its words, where the score is found, what it reads."""
        yield f"trainer   {' '.join(self.table.command)}"
        yield f"reads     {', '.join(self.reads())}; writes its own directory; no network"
        yield f"evaluates {evaluation_text(self.table)}"

    def python_text(self) -> str:
        """Return which Python runs the command and how to choose another; empty for another
        program."""
        program = Path(self.command.argv[0])
        if not program.name.startswith("python"):
            return ""
        text = f"{program}; to use another, write its path as the command's first word"
        beside = environments_above(Path(self.script.directory), program)
        return f"{text}, such as {beside}" if beside is not None else text

    def reads(self) -> Iterator[str]:
        """Yield what the command may read besides the system's libraries, in words."""
        yield "the script's directory but for hidden files, campaigns and links out of it"
        for path in self.command.programs:
            yield str(path)
        yield from self.command.reads


def script_folder(source: str, table: TrainerTable) -> Path:
    """Return the script's directory, which a menu states relative to its file, the source."""
    beside = Path(source).expanduser().absolute().parent
    return (beside / Path(table.directory).expanduser()).resolve()


def environments_above(directory: Path, program: Path) -> Path | None:
    """Return the Python of the nearest ``.venv`` or ``venv`` in a directory or those above it, if
    it is another than the program."""
    for folder in (directory, *directory.parents):
        for name in (".venv", "venv"):
            python = folder / name / "bin" / "python"
            if python.is_file():
                return None if python.parent == program.parent else python
    return None


def _refuse_unfinished(menu: ProxyMenu) -> None:
    """
    :raises MenuError: if the menu still holds a draft's TO DO.
    """
    for number, line in enumerate(menu.toml.splitlines(), 1):
        if "TO DO:" in line or ("TO DO" in line and not line.startswith("#")):
            raise MenuError(
                f"menu {menu.name}, line {number}, still says {plain(line.strip())[:200]!r}; do "
                "what it says and remove the words TO DO"
            )


def _script_in(directory: Path, campaign: Path, table: TrainerTable) -> ScriptInfo:
    sha256, files = code_sha256(directory, campaign.resolve())
    return ScriptInfo(
        directory=str(directory),
        sha256=sha256,
        files=files,
        command=table.command,
        check=() if table.check is None else table.check.command,
    )


def command_of(table: TrainerTable, directory: Path) -> Command:
    """Return the command that trials run.

    :raises SpecError: if the directory, the script or the program does not exist, or if no edited
        copy could replace the script.
    """
    refuse_home(directory, "the script's directory")
    if not directory.is_dir():
        raise SpecError(f"the script's directory {directory} is not there; correct directory")
    for script in (table.script, table.check_script):
        if script is not None and not (directory / script).is_file():
            raise SpecError(
                f"there is no {script} in {directory}; correct the command, or directory"
            )
    is_edited = table.set_by == "edit" or table.slots
    own_path = Path(table.script or "")
    if is_edited and (own_path.is_absolute() or ".." in own_path.parts):
        raise SpecError(
            f"the script {table.script} is not below its directory, where an edited copy takes its "
            "place; make a folder above it the directory"
        )
    program = find_program(table.command[0], directory)
    _refuse_unforkable(table, program)
    reads = [(directory / Path(text).expanduser()).absolute() for text in table.reads]
    for path in reads:
        refuse_home(path.resolve(), "a path that the menu reads")
        refuse_credentials(path.resolve())
        if not path.exists():
            raise SpecError(f"{path}, which reads names, is not there; remove it or correct it")
    return Command(
        argv=(str(program), *table.command[1:]),
        directory=str(directory),
        sent_by=table.values,
        edited=table.script if is_edited else None,
        slots_only=table.set_by != "edit" and bool(table.slots),
        edits=tuple(table.edits.items()),
        env=tuple(table.env.items()),
        reads=tuple(map(str, reads)),
        shared_memory=table.shared_memory,
        programs=tuple(map(str, environment_of(program, directory))),
        score=table.score,
        curve=table.curve,
        measure=table.measure,
        oom=table.oom,
        preload=table.preload,
        main=table.main,
        check=None if table.check is None else _check_of(table.check, directory),
    )


def _check_of(table: CheckTable, directory: Path) -> Check:
    """
    :raises SpecError: if its program does not exist.
    """
    program = find_program(table.command[0], directory)
    programs = tuple(map(str, environment_of(program, directory)))
    return Check(argv=(str(program), *table.command[1:]), programs=programs, score=table.rule)


def _refuse_unforkable(table: TrainerTable, program: Path) -> None:
    """
    :raises SpecError: if the script's function would be called by another Python than the command
        names, or a module to preload does not exist.
    """
    if table.main is None:
        return
    ours = Path(sys.executable).absolute()
    # The Pythons of two environments may be links to one file; the folder tells them apart.
    if (program.parent, program.resolve()) != (ours.parent, ours.resolve()):
        raise SpecError(
            f"main is called in a fork of autoresearch's own Python ({sys.executable}), and the "
            f"command names {program}; write {{python}}, or remove main and preload"
        )
    for name in table.preload:
        # As in the fork server: in a fresh Python, outside the sandbox.
        imported = subprocess.run(
            [sys.executable, "-P", "-c", f"import {name}"],
            env=allowed_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if imported.returncode != 0:
            raise SpecError(
                f"preload names {name}, which {sys.executable} cannot import; install it there, "
                "or remove it"
            )


def _refuse_unknown(script: Path, menu: ProxyMenu) -> None:
    """
    :raises SpecError: if the script lacks a constant that the menu would rewrite.
    """
    assert menu.trainer is not None
    try:
        source = script.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"the script {script} cannot be read as UTF-8 ({error})") from error
    values = {**menu.baseline.said, **dict.fromkeys(menu.trainer.edits, 0)}
    is_edited = menu.trainer.set_by == "edit"
    edited(
        source, {name: one for name, one in values.items() if is_edited or name in menu.code_knobs}
    )


def one_script(check: Callable[[], None]) -> StartHook:
    """Return a hook by which a trial's result counts only if the script is unchanged after it.

    :param check: raises if the script differs from the campaign's. It reads every code file, which
        takes a millisecond for a script with a few files beside it.
    """

    def starts(trial_dir: Path) -> EndHook:
        check()

        def ends(finished: Finished) -> Finished:
            try:
                check()
            except BaseException:
                # The result may be of either script, so no later session may reuse it.
                (trial_dir / RESULT_FILE).unlink(missing_ok=True)
                raise
            return finished

        return ends

    return starts
