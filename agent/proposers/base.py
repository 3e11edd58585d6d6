"""Define the interface of proposers, which make an offer from a view of the search.

The rails check every offer, the sampler's as well as a language model's, and nothing else trusts
one before that. A language model's text is read once, by its proposer.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

from agent.menu.files import ProxyMenu
from agent.menu.replies import ParsedReply
from agent.proposers.priors import Prior
from autoresearch.errors import AutoresearchError
from trainer.schema import AnyConfig, CorpusInfo
from trajectory.evidence import Evidence
from trajectory.proposals import Attempt, Proposal, ProposerRecord
from trajectory.rows import Rules

FEW_CHANGES = 3
"""Most knobs of a small edit; small edits find most gains near a good config (docs/search.md)."""
ASKED_CHANGES = 8
"""Most knobs that a language model is asked to change: the keeps of a real night changed up to
nine."""


@dataclass(frozen=True, slots=True)
class SearchView:
    """Read-only input of a proposer."""

    menu: ProxyMenu
    reference: AnyConfig
    """Config that a proposal edits."""
    evidence: Evidence
    iter: int
    """Iteration to propose for, 1 for the first."""
    seed: int
    """Seed of the campaign's random choices. A proposer draws from (seed, iter) alone, so that a
    resumed campaign continues as if it had never stopped."""
    max_changes: int
    """Most knobs that a proposal may change."""
    priors: tuple[Prior, ...] = ()
    """Earlier campaigns that proposers may learn from."""
    until: int | None = None
    """Last iteration of the present loop, if known."""
    corpus: CorpusInfo | None = None
    """Training and evaluation text, if known."""
    rules: Rules | None = None
    """Rules that judge a change, if known."""
    pending: tuple[AnyConfig, ...] = ()
    """Configs now being raced, with results unknown."""

    @property
    def few_changes(self) -> int:
        """Most knobs that a small edit changes."""
        return min(FEW_CHANGES, self.max_changes, self._numbers)

    @property
    def asked_changes(self) -> int:
        """Most knobs that a language model is asked to change."""
        return min(ASKED_CHANGES, self.max_changes, self._numbers)

    @property
    def _numbers(self) -> int:
        return sum(name not in self.menu.code_knobs for name in self.menu.open_domains)

    @property
    def tried(self) -> Container[str]:
        """Hashes of configs that are known: those measured and those in flight."""
        configs = self.evidence.configs
        if not self.pending:
            return configs
        return configs.keys() | {config.config_hash for config in self.pending}


@dataclass(frozen=True, slots=True)
class Offer:
    """An untrusted proposal, and how it was made."""

    reply: ParsedReply | Proposal
    record: ProposerRecord


class ProposerError(AutoresearchError):
    """No usable proposal was made; ``attempts`` holds the failed ones, for the given prompt."""

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
    """Interface that connects a user's own search."""

    def propose(self, view: SearchView) -> Offer:
        """Offer one proposal for ``view.iter``.

        :raises ProposerError: if it has none; the loop continues with another proposer.
        """
