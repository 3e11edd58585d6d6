"""``python -m bench.paired``: does the loop find what it found before, in the same time?

An earlier version and this one run ``loop`` over cpu-tiny, at the same moment on a core each, on
the same campaign seeds, in real trials of one thread; what both had found after the shorter of the
two searches' times is trained on fresh seeds beside the baseline. With 100 iterations and five
seeds that is some 2,000 trials: 90 minutes of two cores that have bf16 instructions; where they
have none a trial of 0.2.0 takes minutes. Stopped, the same command goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent.menu.files import load_menu
from agent.search.campaign_settings import new_settings
from agent.workbench.corpora import prepared_corpus
from bench.command import run
from bench.paired.checkouts import Checkout
from bench.paired.found import incumbent_at, iterations_of, seconds_of
from bench.paired.fresh import FreshRuns, Interval
from bench.simulator.idle import be_idle
from bench.table.__main__ import WALL_S
from bench.table.plan import SHORT_STEPS
from trainer.executors.local import LocalExecutor
from trainer.spec import gpt

EARLIER = "88319ed"
"""The commit that was 0.2.0."""
MENU = "cpu-tiny"


def main(
    earlier: Annotated[str, typer.Option(help="A commit of the version before.")] = EARLIER,
    now: Annotated[str, typer.Option(help="A commit of this version.")] = "HEAD",
    seeds: Annotated[int, typer.Option(min=1, help="Campaign seeds.")] = 5,
    iterations: Annotated[int, typer.Option("--iters", min=1, help="Of each loop.")] = 100,
    fresh: Annotated[int, typer.Option(min=1, help="Seeds that no search used.")] = 8,
    steps: Annotated[int, typer.Option(min=3, help="Of a trial.")] = SHORT_STEPS,
    work: Annotated[Path, typer.Option(help="Where all of it is kept.")] = Path("runs/paired"),
    idle: Annotated[bool, typer.Option(help="Only what nobody else wants of the machine.")] = True,
) -> None:
    """True gains of both versions over the baseline, seed by seed, and the paired difference."""
    if idle:
        be_idle()
    work.mkdir(parents=True, exist_ok=True)
    versions = [Checkout.made("earlier", earlier, work), Checkout.made("now", now, work)]
    for seed in range(seeds):
        _search(versions, seed, iterations, steps)
    _tell(versions, seeds, fresh, steps, work, typer.echo)


def _search(versions: list[Checkout], seed: int, iterations: int, steps: int) -> None:
    """A night of each version, both at once: what else the machine does slows both alike. Once one
    has made its iterations the other is stopped as soon as it has searched as long.

    :raises SettingsError: where one of them ended otherwise than well; the other ends its night
        first.
    """
    with ThreadPoolExecutor(len(versions)) as nights:
        ended = [
            nights.submit(_loop, version, seed, iterations, steps, _others(versions, version, seed))
            for version in versions
        ]
    for night in ended:
        night.result()


def _others(versions: list[Checkout], version: Checkout, seed: int) -> list[Path]:
    return [_campaign(other, seed) for other in versions if other is not version]


def _loop(
    version: Checkout, seed: int, iterations: int, steps: int, others: Sequence[Path]
) -> None:
    """The search and nothing after it: what it found is measured here, alike for both."""
    campaign = _campaign(version, seed)

    def enough() -> bool:
        """What came later would be cut off at the shorter search's time."""
        whole = [seconds_of(one) for one in others if iterations_of(one) >= iterations]
        return bool(whole) and seconds_of(campaign) >= min(whole)

    options = ["--iters", str(iterations), "--seed", str(seed), "--threads", "1"]
    options += ["--menu", MENU, "--proposer", "sampler", "--trial-wall-s", f"{WALL_S:.0f}"]
    options += ["--budget", f"{steps} steps"]
    knows_confirm = (version.directory / "agent/search/confirm").exists()
    options += ["--no-confirm"] if knows_confirm else []
    version.loop(campaign, *options, enough=enough)


def _campaign(version: Checkout, seed: int) -> Path:
    return version.directory / "runs" / f"seed-{seed}"


def _tell(
    versions: list[Checkout],
    seeds: int,
    fresh: int,
    steps: int,
    work: Path,
    say: Callable[[str], None],
) -> None:
    menu = load_menu(MENU)
    settings = new_settings(menu, MENU, {"threads": 1})
    corpus = prepared_corpus(settings, Console(stderr=True))
    gains: dict[str, list[float]] = {version.name: [] for version in versions}
    with LocalExecutor() as executor:
        runs = FreshRuns(work / f"fresh-{steps}.jsonl", executor, settings, corpus, steps)
        for seed in range(seeds):
            campaigns = {version.name: _campaign(version, seed) for version in versions}
            seconds = min(seconds_of(campaign) for campaign in campaigns.values())
            for name, campaign in campaigns.items():
                config, iterations = incumbent_at(campaign, seconds)
                gains[name].append(runs.gain(gpt(config), gpt(menu.baseline), fresh))
                say(
                    f"seed {seed}, {name}: {gains[name][-1]:+.4f} bpb after {iterations} "
                    f"iterations in {seconds:.0f} s"
                )
    for name, found in gains.items():
        say(f"{name}: a true gain of {Interval.of(found)} bpb")
    pairs = zip(gains["now"], gains["earlier"], strict=True)
    say(f"now less earlier, paired: {Interval.of([a - b for a, b in pairs])} bpb")


if __name__ == "__main__":
    run(main)
