"""Check that a machine fault stops a campaign at once, and that no row blames a config for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.proposers.draws import RandomProposer
from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.stopping import Goal, StopRequest
from autoresearch.errors import MachineryError
from tests.support import faulty_trainer
from tests.support.corpora import write_corpus
from tests.support.nights import WORLD, Onlooker
from tests.support.simulated.night import put_together
from trainer.executors.local import LocalExecutor, LocalJob
from trainer.spec import TrialSpec


class Faulty(LocalExecutor):
    """Run every trial on a machine with the same fault."""

    fault = ""

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LocalJob:
        faulty_trainer.break_it(trial_dir, self.fault)
        return super().submit(spec, trial_dir)


@pytest.mark.parametrize("fault", ["driver", pytest.param("norm", marks=pytest.mark.slow)])
def test_the_campaign_stops_at_the_first_trial(fault: str, tmp_path: Path) -> None:
    settings = new_settings(WORLD.menu, WORLD.menu.name, {"threads": 1})
    corpus = write_corpus(tmp_path / "corpus")
    directory = tmp_path / "campaign"
    with (
        Faulty(entry=faulty_trainer.ENTRY, allow_unsandboxed=True) as executor,
        Campaign(directory, settings, WORLD.menu, corpus, sandbox="a test") as campaign,
    ):
        executor.fault, stop = fault, StopRequest()
        watcher = Onlooker(campaign, stop)
        loop = put_together(
            campaign, RandomProposer, settings.rules(), executor, watcher, stop=stop
        )
        with pytest.raises(MachineryError):
            loop.run(Goal(iterations=2))
        assert [row.kind for row in campaign.journal.rows()] == ["campaign"]
        assert [one.name for one in (directory / "trials").glob("t*")] == ["t000001"]
