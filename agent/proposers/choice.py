"""Choose the proposer."""

from dataclasses import dataclass
from pathlib import Path

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
from autoresearch.words import counted


@dataclass(frozen=True, slots=True)
class Choice:
    """A proposer and its short description."""

    proposer: Proposer
    description: str
    is_slow: bool = False
    """Whether it waits for a language model."""


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
    write: Write | None = None
    proposer: Proposer = sampler
    if settings.proposer == "library":
        proposer, said = library, "the library of published ideas, then the sampler"
    elif settings.proposer == "random":
        proposer, said = RandomProposer(rails), "uniformly random"
    elif settings.proposer == "sampler":
        said = "the sampler (near and far edits, a Gaussian process)"
    else:
        prompter = Prompter(
            settings.budget,
            horizon_steps=settings.horizon_steps,
            moves=settings.reference == "incumbent",
            tokens=settings.prompt_tokens,
            program=program_text(program),
        )
        proposer, said, write = _with_model(
            settings, environment, rails, sampler, prompter, directory
        )
    if rails.menu.code_knobs and settings.proposer not in {"library", "random"}:
        said += "; code from the library of published ideas" + (" and the model" if write else "")
        proposer = CodeSplit(proposer, library, write)
    if priors:
        said += f", knowing {counted(priors, 'earlier campaign')}"
    return Choice(proposer, said, is_slow=write is not None)


def _with_model(
    settings: CampaignSettings,
    environment: Environment,
    rails: Rails,
    sampler: Proposer,
    prompter: Prompter,
    directory: Path,
) -> tuple[Proposer, str, Write | None]:
    """Return the proposer of the language model and the sampler, its description, and how to ask
    the model for a function, if it is asked."""
    if not environment.llm_base_url:
        if settings.proposer == "llm":
            raise SettingsError(
                "--proposer llm needs an endpoint, and AUTORESEARCH_LLM_BASE_URL is not set; "
                "set it, for example to http://localhost:8000/v1"
            )
        said = "hybrid, with only the sampler: AUTORESEARCH_LLM_BASE_URL is not set"
        return HybridProposer(sampler, None, rails), said, None
    # The client of these two loads more slowly than all the rest of the command.
    from agent.proposers.llm.endpoint import Endpoint  # noqa: PLC0415
    from agent.proposers.llm.proposer import LlmProposer  # noqa: PLC0415

    endpoint = Endpoint.of(environment)
    llm = LlmProposer(endpoint, rails, prompter, Conversations(directory))
    model = environment.llm_model or "its first model"
    where = f"{model} at {endpoint.base_url}"
    if settings.proposer == "llm":
        return FallbackProposer(llm, sampler), f"{where}, with the sampler as fallback", llm.write
    if not settings.llm_share:
        said = f"hybrid, with only the sampler: at an llm_share of 0, {where} is never asked"
        return HybridProposer(sampler, None, rails), said, None
    said = f"hybrid: the sampler draws candidates, and {where} chooses from them while that pays"
    return HybridProposer(sampler, llm.choose, rails, share=settings.llm_share), said, llm.write


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
