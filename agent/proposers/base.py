"""What a proposer is: something that, shown the memory of a campaign, offers a proposal.

An offer is text, whoever made it. Nothing a proposer says is believed before the rails have passed
it, a sampler's no more than a language model's.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Protocol

from agent.menu.files import ProxyMenu
from agent.proposers.priors import Prior
from autoresearch.errors import AutoresearchError
from autoresearch.values import Scalar
from trainer.spec import AnyConfig, CorpusInfo
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, ProposerRecord
from trajectory.rules import Rules

FEW_CHANGES = 3
"""Turning so few knobs of what is good is what a search lives on near it (docs/search.md)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a proposer is shown. It must not change any of it."""

    menu: ProxyMenu
    reference: AnyConfig
    """The config a proposal edits."""
    evidence: Evidence
    iter: int
    """The iteration to propose for, 1 for the first."""
    seed: int
    """Root of the campaign's random choices. A proposer draws from (seed, iter) alone, so that a
    resumed campaign goes on as if it had never stopped."""
    max_changes: int
    """Knobs that a proposal may turn."""
    priors: tuple[Prior, ...] = ()
    """Earlier campaigns that proposers may learn from."""
    until: int | None = None
    """The iteration that the loop at work ends with, where it is known."""
    corpus: CorpusInfo | None = None
    """What is trained on and measured with, where it is known."""
    rules: Rules | None = None
    """What a change is judged by, where it is known."""
    pending: tuple[AnyConfig, ...] = ()
    """What is being raced meanwhile, where several are at once: nothing is known of them yet."""

    @property
    def few_changes(self) -> int:
        """Knobs that a small edit turns at most."""
        return min(FEW_CHANGES, self.max_changes, len(self.menu.knobs))

    @property
    def asked_changes(self) -> int:
        """Knobs that a language model is asked for at most: as many as the campaign's limit says,
        a few where there is none."""
        limited = self.max_changes < len(self.menu.knobs)
        return self.max_changes if limited else self.few_changes

    @property
    def tried(self) -> Container[str]:
        """The hashes of the configs that would be no news: those measured and those in flight."""
        configs = self.evidence.configs
        if not self.pending:
            return configs
        return configs.keys() | {config.config_hash for config in self.pending}


@dataclass(frozen=True, slots=True)
class Offer:
    """An untrusted proposal: JSON text for the rails, and how it came about."""

    raw: str
    record: ProposerRecord


class ProposerError(AutoresearchError):
    """No usable proposal came; ``attempts`` holds what did, in answer to which prompt."""

    def __init__(
        self,
        message: str,
        attempts: tuple[Attempt, ...] = (),
        *,
        model: str | None = None,
        prompt_sha256: str | None = None,
    ) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.model = model
        self.prompt_sha256 = prompt_sha256


class Proposer(Protocol):
    """The seam where a user's own search plugs in."""

    def propose(self, memory: Memory) -> Offer:
        """Offer one proposal for ``memory.iter``.

        :raises ProposerError: where none can be had; the night goes on with another proposer.
        """
        ...


class SuggestibleProposer(Protocol):
    """A proposer that can be shown another's idea, to repeat or to override."""

    def propose(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Offer:
        """See :meth:`Proposer.propose`.

        :param suggestion: changes to the reference.
        """
        ...
