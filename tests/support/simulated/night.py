"""Run one night: a campaign of the product, in a world whose truth is known.

Campaign, loop, race, judge, rails, journal and history are the product's own, on disk as usual (in
memory if /dev/shm exists, so that syncs do not wait). Only the executor is simulated. The night
also reports what no campaign can know: its reference's true score.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from agent.search.campaign import Campaign
from agent.search.campaign_start import new_settings
from agent.search.loop import Loop
from agent.search.stopping import Goal, StopRequest
from agent.search.trials import TrialRunner
from autoresearch.layout import TRIALS_DIR
from autoresearch.values import Frozen
from tests.support.simulated.account import Account, Stage
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import World
from trainer.corpus import Corpus
from trainer.schema import CorpusInfo
from trajectory.history.tables import MEMORY
from trajectory.ranking import ranked_config
from trajectory.rows import Rules

MakeProposer = Callable[[Rails], Proposer]
SHM = Path("/dev/shm")


class Night(Frozen):
    """Hold the outcome of one night."""

    world: str
    seed: int
    best: float
    """Best known true score in the world."""
    stages: tuple[Stage, ...]
    keeps: int
    false_keeps: int
    """Number of kept configs that are truly no better than the reference of that iteration."""
    refused: int
    """Number of proposals that the rails refused."""
    failures: dict[str, int]
    """Trials that ended without a score, by status."""
    told_gain: float | None
    """The incumbent's gain over the baseline, as ``top`` reports it; positive is better."""
    ask_ms: float
    """Median milliseconds per proposal."""
    seconds: float
    """Real seconds that the night took."""

    @property
    def true_gain(self) -> float:
        """True gain of the last reference over the baseline; positive is better."""
        return self.stages[0].truth - self.stages[-1].truth

    @property
    def runs(self) -> int:
        """Trials, the baseline's included."""
        return self.stages[-1].runs

    def regret(self, iteration: int) -> float:
        """Return the reference's true score after this many iterations, less the best known one."""
        return [one for one in self.stages if one.iteration <= iteration][-1].truth - self.best


def night(
    world: World,
    make_proposer: MakeProposer,
    *,
    seed: int,
    iterations: int = 100,
    rules: Rules | None = None,
    settings: Mapping[str, Any] | None = None,
    runs: int | None = None,
) -> Night:
    """Search in this world.

    :param seed: the campaign's seed, for proposals and trials. Nights with one seed see the same
        noise on the same configs with any proposer.
    :param rules: the judge's rules; None: those the product ships with.
    :param settings: the campaign's settings that differ from the product's defaults.
    :param runs: also end after this many trials.
    """
    began = time.monotonic()
    rules = Rules() if rules is None else rules
    with scratch_campaign(world, {**(settings or {}), "seed": seed}) as campaign:
        watcher = Account(world, campaign)
        with SimulatedExecutor(world) as executor:
            loop = put_together(campaign, make_proposer, rules, executor, watcher)
            loop.run(Goal(iterations=iterations, trials=runs))
        told = ranked_config(campaign.evidence, campaign.evidence.incumbent_hash)
        delta = told.delta_vs_baseline if told is not None else None
        return Night(
            world=world.name,
            seed=seed,
            best=world.best,
            stages=tuple(watcher.stages),
            keeps=watcher.keeps,
            false_keeps=watcher.false_keeps,
            refused=watcher.refused,
            failures=watcher.failures,
            told_gain=None if delta is None else -delta,
            ask_ms=1000 * median(watcher.asks_s or [0.0]),
            seconds=time.monotonic() - began,
        )


def put_together(
    campaign: Campaign,
    make_proposer: MakeProposer,
    rules: Rules,
    executor: SimulatedExecutor,
    watcher: Account,
    stop: StopRequest | None = None,
    *,
    asks_early: bool = False,
) -> Loop:
    """Return the loop that works on this campaign."""
    rails = Rails(
        campaign.menu,
        budget=campaign.settings.budget,
        max_changes=campaign.settings.max_changes,
    )
    return Loop(
        campaign=campaign,
        proposer=make_proposer(rails),
        rails=rails,
        rules=rules,
        runner=TrialRunner(
            campaign.directory / TRIALS_DIR,
            campaign.trial_spec,
            executor,
            campaign.results.trial_ids,
            stop or StopRequest(),
            watcher,
        ),
        watcher=watcher,
        meter=NoMeter(),
        asks_early=asks_early,
        # proposing takes no simulated time either
        asks_beside=asks_early,
    )


@contextmanager
def scratch_campaign(world: World, chosen: Mapping[str, Any]) -> Iterator[Campaign]:
    """Yield a campaign in a directory that is deleted afterwards."""
    shared = SHM if SHM.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="autoresearch-night-", dir=shared) as scratch:
        directory = Path(scratch)
        with Campaign(
            directory / "campaign",
            new_settings(world.menu, world.menu.name, chosen),
            world.menu,
            no_corpus(directory),
            sandbox="simulated",
            history_url=MEMORY,
        ) as campaign:
            yield campaign


def no_corpus(directory: Path) -> Corpus:
    """Return a corpus of one training token and one held-out token, which no trial reads."""
    info = CorpusInfo(
        name="simulated",
        sha256="0" * 64,
        heldout_sha256="0" * 64,
        tokenizer="bytes",
        vocab_size=257,
        separator_id=256,
        dtype="uint16",
        documents=2,
        duplicates=0,
        train_documents=1,
        train_tokens=1,
        train_bytes=1,
        heldout_documents=1,
        heldout_tokens=1,
        heldout_bytes=1,
    )
    path = directory / "tokens.bin"
    path.write_bytes(bytes(2))
    tokens = np.memmap(path, dtype=np.uint16, mode="r", shape=(1,))
    return Corpus(info=info, train=tokens, heldout=tokens, directory=directory)


class NoMeter:
    """Report no energy: simulated trials use none."""

    def mark(self) -> float:
        return 0.0

    def energy_wh(self, since_s: float, until_s: float | None = None) -> float | None:
        return None
