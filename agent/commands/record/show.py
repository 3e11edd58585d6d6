"""``autoresearch show``: one config, as a person, a program or a shell takes it."""

import json
import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from agent.commands.campaign_view import CampaignView
from agent.commands.night.board import interval_text
from agent.menu.files import menu_of
from agent.session.console import answer
from agent.session.own_trainer import command_of
from agent.session.places import CampaignOption, latest_campaign
from autoresearch.campaign_files import has_file
from autoresearch.errors import CampaignError
from autoresearch.files import read_given
from autoresearch.layout import SPEC_FILE, TRIALS_DIR
from autoresearch.safe_text import plain
from autoresearch.values import Scalar
from autoresearch.words import changes_text, counted, toml_text
from trainer.command.filling import Filled, filled
from trainer.schema import Command, TrialSpec, difference
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.ranking import Posteriors
from trajectory.reading import Results
from trajectory.rows import CampaignRow


class ShownAs(StrEnum):
    """Form in which a config is shown."""

    TEXT = "text"
    JSON = "json"
    TOML = "toml"
    COMMAND = "command"
    SCRIPT = "script"


OUT = Path("out")
"""Directory that a filled-in command writes."""


def show(
    config: Annotated[
        str | None,
        typer.Argument(
            help="An iteration's number (0: the baseline), or the first digits of a config's hash. "
            "Default: the config of the campaign's result.",
            show_default=False,
        ),
    ] = None,
    campaign: CampaignOption = None,
    shown_as: Annotated[
        ShownAs,
        typer.Option(
            "--as",
            help="text, json or toml: its values. command: a command line that trains it. script: "
            "the script with its constants rewritten.",
        ),
    ] = ShownAs.TEXT,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed in the command. Default: that of its first run."),
    ] = None,
) -> None:
    """Show a config: its result, values, or the command that trains it."""
    view = CampaignView(campaign or latest_campaign())
    results = view.results()
    row = results.campaign
    if row is None:
        raise CampaignError(f"{view.directory} holds an empty journal; start its loop first")
    entry = _entry(results, config)
    if shown_as is ShownAs.TEXT:
        answer(None, _lines(view.directory, results, row, entry), as_json=False)
        return
    if shown_as is ShownAs.JSON:
        text = json.dumps(_values(entry), indent=2)
    elif shown_as is ShownAs.TOML:
        text = _toml(row, entry)
    elif row.script is None:
        text = _trainer_command(view.directory, entry, shown_as, seed)
    else:
        spec, command = _own_spec(row, entry, seed)
        make = _script if shown_as is ShownAs.SCRIPT else _own_command
        text = make(command, filled(spec, command, OUT, spec.threads or 1))
    if sys.stdout.isatty():  # a campaign of somebody else may hold what a terminal obeys
        text = "\n".join(map(plain, text.split("\n")))
    typer.echo(text.removesuffix("\n"))


def _entry(results: Results, wanted: str | None) -> ConfigEvidence:
    """
    :raises CampaignError: if no config, or more than one, is meant.
    """
    evidence: Evidence = results.evidence
    if wanted is None:
        wanted = results.headline().config_hash
        if wanted is None:
            raise CampaignError("nothing was measured in this campaign yet; run autoresearch loop")
    number = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < 7 else None
    found = [one for one in evidence.configs.values() if one.iter == number]
    if number is None:
        found = [one for name, one in evidence.configs.items() if name.startswith(wanted)]
    if len(found) != 1:
        raise CampaignError(
            f"{wanted} names {counted(len(found), 'config')} of this campaign; give the number of "
            "an iteration that trained one, or the first digits of a hash, as autoresearch top "
            "shows them"
        )
    return found[0]


def _lines(
    directory: Path, results: Results, row: CampaignRow, entry: ConfigEvidence
) -> Iterator[Text | str]:
    measure, menu = row.measured_in, menu_of(row)
    where = f"iteration {entry.iter}" if entry.iter else "the baseline"
    yield Text(f"{where}, config {entry.config_hash[:12]}", style="bold")
    for ranked in Posteriors.of(results.evidence).of_configs([entry.config_hash]):
        yield (
            f"estimate  {measure.text(ranked.objective)} {measure.short}, 95 % interval "
            f"{interval_text(ranked, measure)}, {counted(ranked.n, 'run')}"
        )
        if ranked.delta_vs_baseline is not None:
            yield f"gain      {measure.signed(ranked.delta_vs_baseline)} against the baseline"
        yield f"size      {ranked.footprint}"
    fresh = results.latest_confirmed().get(entry.config_hash)
    if fresh is not None:
        yield f"fresh     {fresh.verdict}: {fresh.headline or fresh.trouble}"
    if entry.failures:
        yield f"failed    {entry.failures[-1].status}: {entry.failures[-1].message}"
    changed = changes_text(difference(entry.config, menu.baseline))
    yield f"differs   {changed or 'in nothing: it is the baseline'}"
    yield (
        "take it home, as a command, as toml or as json, with:\n"
        f"  autoresearch show {entry.iter} --as command --campaign {shlex.quote(str(directory))}"
    )


def _values(entry: ConfigEvidence) -> dict[str, Scalar]:
    """Return its values, without those that are not set."""
    return {name: one for name, one in entry.config.said.items() if one not in (None, "")}


def _toml(row: CampaignRow, entry: ConfigEvidence) -> str:
    """Return its values as TOML, those that differ from the baseline first."""
    values, baseline = _values(entry), menu_of(row).baseline.said
    lines = [f"# iteration {entry.iter} of campaign {row.id}, config {entry.config_hash}"]
    for name, value in sorted(values.items(), key=lambda pair: pair[1] == baseline.get(pair[0])):
        key = name if name.isidentifier() else toml_text(name)
        note = "" if value == baseline.get(name) else f"  # baseline: {_short(baseline.get(name))}"
        lines.append(f"{key} = {toml_text(value)}{note}")
    return "\n".join(lines) + "\n"


def _short(value: Scalar | None) -> str:
    return toml_text(value) if value is not None else "none"


# --- command lines ------------------------------------------------------------------------------


def _trainer_command(
    directory: Path, entry: ConfigEvidence, shown_as: ShownAs, seed: int | None
) -> str:
    """Return the command that repeats one of its trials with the built-in trainer."""
    if shown_as is ShownAs.SCRIPT:
        raise CampaignError("this campaign trains the built-in model, not a script; use --as toml")
    seeds = [seed] if seed is not None else sorted(entry.trial_ids)
    for one in seeds:
        place = f"{TRIALS_DIR}/{entry.trial_ids.get(one, '')}"
        if one in entry.trial_ids and has_file(directory, f"{place}/{SPEC_FILE}"):
            spec = directory.resolve() / place / SPEC_FILE
            return shlex.join([sys.executable, "-P", "-m", "trainer", str(spec), "--out", str(OUT)])
    raise CampaignError(
        f"the campaign has no {SPEC_FILE} of a trial of this config"
        f"{'' if seed is None else f' on seed {seed}'}; take its values with --as toml"
    )


def _own_spec(
    row: CampaignRow, entry: ConfigEvidence, seed: int | None
) -> tuple[TrialSpec, Command]:
    menu, script = menu_of(row), row.script
    assert menu.trainer is not None and script is not None
    command = command_of(menu.trainer, Path(script.directory))
    first = min([*entry.scores, *entry.failed_seeds], default=row.seed)
    spec = TrialSpec(
        trial_id="",
        config=entry.config,
        seed=first if seed is None else seed,
        budget=row.budget,
        horizon_steps=row.horizon_steps,
        device=row.device,
        threads=menu.campaign.threads,
        command=command,
    )
    return spec, command


def _own_command(command: Command, filling: Filled) -> str:
    """Return a shell's command lines that train it as a trial does, without the sandbox."""
    if command.edited is not None:
        raise CampaignError(
            f"trials of this campaign run a copy of {command.edited} with other constants; write "
            f"that copy with: --as script > {Path(command.edited).stem}-best.py"
        )
    lines = [shlex.join(["cd", command.directory])]
    if any(str(OUT) in word for word in (*filling.argv, *filling.env.values())) or filling.values:
        lines.append(shlex.join(["mkdir", "-p", str(OUT)]))
    if filling.values is not None:
        name, text = filling.values
        lines.append(f"{shlex.join(['printf', '%s', text])} > {shlex.quote(str(OUT / name))}")
    env = [f"{name}={shlex.quote(value)}" for name, value in filling.env.items()]
    lines.append(" ".join([*env, shlex.join(filling.argv)]))
    return " &&\n".join(lines)


def _script(command: Command, filling: Filled) -> str:
    if command.edited is None:
        raise CampaignError("the command sets every value of this config; use --as command")
    from trainer.script.editing import edited  # noqa: PLC0415 (of use to few)

    source = read_given(Path(command.directory) / command.edited)
    return edited(source.decode("utf-8"), filling.edits)
