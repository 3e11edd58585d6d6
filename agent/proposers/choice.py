"""Choose the proposer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.proposers.code import CodeSplit, LibraryProposer, Write
from agent.proposers.draws import RandomProposer
from agent.proposers.hybrid import FallbackProposer, HybridProposer
from agent.proposers.llm.completions import Conversations
from agent.proposers.llm.prompt import Prompter
from agent.proposers.sampler import SamplerProposer
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError
from autoresearch.files import read_given
from autoresearch.layout import JOURNAL_FILE
from autoresearch.words import counted
from trajectory.journal import read_rows
from trajectory.rows import IterationRow

if TYPE_CHECKING:
    from agent.proposers.llm.command import CommandModel
    from agent.proposers.llm.endpoint import Endpoint


def _nothing() -> None:
    """End nothing."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A proposer and its short description."""

    proposer: Proposer
    description: str
    write: Write | None = None
    """Asks the language model for a function; None if no model is asked."""
    close: Callable[[], None] = _nothing
    """Ends a question in progress."""

    @property
    def is_slow(self) -> bool:
        """Whether it waits for a language model."""
        return self.write is not None


def choose_proposer(
    settings: CampaignSettings,
    environment: Environment,
    rails: Rails,
    *,
    directory: Path,
    program: Path | None = None,
    priors: int = 0,
) -> Choice:
    """Return the proposer of the settings, with the endpoint of the environment.

    :param directory: the campaign's directory, where conversations are stored.
    :param program: a file of research directions for the language model.
    :param priors: number of earlier campaigns to learn from.
    :raises SettingsError: if something it names does not exist.
    """
    sampler = FallbackProposer(SamplerProposer(rails), RandomProposer(rails))
    library = LibraryProposer(rails, sampler)
    if settings.proposer == "library":
        choice = Choice(library, "the library of published ideas, then the sampler")
    elif settings.proposer == "random":
        choice = Choice(RandomProposer(rails), "uniformly random")
    elif settings.proposer == "sampler":
        choice = Choice(sampler, "the sampler (near and far edits, a Gaussian process)")
    else:
        prompter = Prompter(
            settings.budget,
            horizon_steps=settings.horizon_steps,
            moves=settings.reference == "incumbent",
            tokens=settings.prompt_tokens,
            program=program_text(program),
        )
        choice = _with_model(settings, environment, rails, sampler, prompter, directory)
    said = choice.description
    if rails.menu.code_knobs and settings.proposer not in {"library", "random"}:
        said += "; code from the library of published ideas"
        said += " and the model" if choice.is_slow else ""
        choice = replace(choice, proposer=CodeSplit(choice.proposer, library, choice.write))
    if priors:
        said += f", knowing {counted(priors, 'earlier campaign')}"
    return replace(choice, description=said)


def _with_model(
    settings: CampaignSettings,
    environment: Environment,
    rails: Rails,
    sampler: Proposer,
    prompter: Prompter,
    directory: Path,
) -> Choice:
    """Return the proposer of the language model and the sampler."""
    without = HybridProposer(sampler, None, rails)
    if not (environment.proposer_command or environment.llm_base_url):
        if settings.proposer == "llm":
            raise SettingsError(
                "--proposer llm needs a language model, and AUTORESEARCH_LLM_BASE_URL is not set; "
                "set it, for example to http://localhost:8000/v1, or give --proposer-command"
            )
        return Choice(
            without, "hybrid, with only the sampler: AUTORESEARCH_LLM_BASE_URL is not set"
        )
    # These load more slowly than all the rest of the command.
    from agent.proposers.llm.command import CommandModel  # noqa: PLC0415
    from agent.proposers.llm.proposer import LlmProposer  # noqa: PLC0415

    model = language_model(environment, directory)
    llm = LlmProposer(model, rails, prompter, Conversations(directory))
    where, close = model.where, _nothing
    if isinstance(model, CommandModel):
        close = model.close
    else:
        where = f"{environment.llm_model or 'its first model'} at {where}"
    if settings.proposer == "llm":
        said = f"{where}, with the sampler as fallback"
        return Choice(FallbackProposer(llm, sampler), said, llm.write, close)
    if not settings.llm_share:
        said = f"hybrid, with only the sampler: at an llm_share of 0, {where} is never asked"
        return Choice(without, said)
    said = f"hybrid: the sampler draws candidates, and {where} chooses from them while that pays"
    hybrid = HybridProposer(sampler, llm.choose, rails, share=settings.llm_share)
    return Choice(hybrid, said, llm.write, close)


def language_model(
    environment: Environment, directory: Path | None = None
) -> Endpoint | CommandModel:
    """Return the client of the environment's command, else of its endpoint.

    :param directory: a campaign, whose earlier calls of the command count towards its limits.
    :raises SettingsError: if there is neither, or it is invalid.
    """
    if not environment.proposer_command:
        from agent.proposers.llm.endpoint import Endpoint  # noqa: PLC0415

        return Endpoint.of(environment)
    from agent.proposers.llm.command import CommandModel  # noqa: PLC0415

    model = CommandModel(environment)
    for row in read_rows(directory / JOURNAL_FILE) if directory else ():
        if isinstance(row, IterationRow) and row.proposer.model == model.known_model:
            model.count(row.proposer.attempts)
    return model


def program_text(program: Path | None) -> str:
    """Return a file of research directions; an empty text if there is none.

    :raises SettingsError: if it cannot be read.
    """
    if program is None:
        return ""
    try:
        return read_given(program, 1 << 20).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(
            f"the program file {program} cannot be read: {why}; give a UTF-8 text file"
        ) from error
