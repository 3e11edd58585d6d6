"""Provide a proposer that follows a script."""

from collections.abc import Sequence

from agent.menu.replies import read_reply
from agent.proposers.base import Offer, ProposerError, SearchView
from trajectory.proposals import ProposerRecord


class ScriptedProposer:
    """Offer ``raws[iter - 1]`` regardless of earlier offers, so that a campaign can resume."""

    def __init__(self, raws: Sequence[str]) -> None:
        self._raws = tuple(raws)

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the script has ended.
        """
        if view.iter > len(self._raws):
            raise ProposerError(
                f"the script ends after {len(self._raws)} proposals and iteration {view.iter} "
                "asks for one more; write a longer script"
            )
        return Offer(read_reply(self._raws[view.iter - 1]), ProposerRecord(kind="scripted"))
