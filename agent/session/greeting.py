"""Print the lines that a session begins with: what it trains, where, and within which limits.

They include the epochs that each phase makes over the corpus. Up to four epochs of one text train
nearly as well as new text would. The value of further epochs falls towards nothing at about sixteen
(Muennighoff et al. 2023, arXiv 2305.16264, section 5). A ranking by runs that repeat their text
also measures how well a config tolerates repetition.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.menu.proxy_menu import ProxyMenu
from agent.search.campaign import Campaign
from agent.session.console import print_lines
from agent.session.score_audit import static_findings
from agent.session.session import Session
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import read_environment
from autoresearch.words import counted, duration_text, millions_text
from trainer.executors.base import Executor
from trainer.executors.lanes import shares, usable_cores
from trainer.machine.flops import TrainingFlops, block_weights
from trainer.memory.estimate import device_limit, parameter_count
from trainer.schema import CorpusInfo, gpt
from trajectory.spending import RUNS_PER_ITERATION


def greet(
    session: Session,
    *more: str,
    target_tokens: int | None = None,
    iters: int | None = None,
    verbose: bool = False,
) -> None:
    """Print the campaign, the trainer, the device and the limits of a session.

    :param more: further lines for this kind of work.
    :param iters: iterations that a search will make, for its tokens.
    :param target_tokens: token budget of the target that the campaign is for, if known.
    :param verbose: whether to print the details of a command, too.
    """
    campaign, settings = session.campaign, session.campaign.settings
    session.say(
        f"campaign  {campaign.directory} · menu {campaign.menu.name} · {settings.budget} a trial"
    )
    details = [f"memory    {session.memory.description}", f"telemetry {session.telemetry}"]
    if session.own is None:
        _greet_corpus(session, target_tokens, iters)
    else:
        print_lines(session.console, session.own.lines())
        doubts = static_findings(session.own.table, Path(session.own.script.directory))
        print_lines(session.console, (f"          {one}" for one in doubts), "yellow")
        details = [*session.own.details(), *details] if verbose else []
    session.say(f"sandbox   {session.executor.describe()}")
    if session.executor.places > 1 or settings.executor != "local":
        session.say(f"lanes     {_lanes(campaign, session.executor)}")
    if settings.executor == "local" and settings.device == "cpu":  # only then is memory shared
        total_gib, reserve_gib = device_limit("cpu").gib, read_environment().memory_reserve_gib
        lanes, trial_gib = session.executor.places, settings.trial_memory_gib
        if crowded := crowding(lanes, trial_gib, total_gib - reserve_gib):
            session.say(crowded, "yellow")
    print_lines(session.console, (*details, *more))
    notices = (campaign.note, campaign.journal.repaired, campaign.history.note)
    print_lines(session.console, filter(None, notices), "yellow")


def _greet_corpus(session: Session, target_tokens: int | None, iters: int | None) -> None:
    """Print what the built-in trainer reads, and how often."""
    campaign, settings = session.campaign, session.campaign.settings
    info = campaign.corpus.info
    params = parameter_count(gpt(campaign.menu.baseline), info.vocab_size)
    phases = phases_of(campaign.menu, settings, target_tokens)
    epochs = {name: tokens / info.train_tokens for name, tokens in phases.items()}
    each = "; ".join(f"{name} {epochs_text(times)}" for name, times in epochs.items())
    session.say(
        f"corpus    {info.name} · {info.tokenizer} · {info.train_bytes / 1e6:.3g} MB to train "
        f"on, {info.heldout_bytes:,} bytes held out"
    )
    session.say(
        f"size      {millions_text(params)} parameters at the defaults, with this corpus's "
        f"vocabulary of {info.vocab_size:,}"
    )
    if settings.device == "cpu" and (line := slow_on_cpu(campaign.menu, settings, info)):
        session.say(line, "yellow")
    session.say(f"epochs    {each}")
    if iters and (night := night_tokens(campaign.menu, settings, iters)):
        session.say(
            f"tokens    about {night:,} in {iters:,} iterations, with the baseline, the pairs "
            "and the confirmation"
        )
    print_lines(session.console, warnings(epochs, info), "yellow")


CORE_FLOPS = 5e10
"""Floating-point operations a second of one core, as cpu-tiny trains on two."""
SLOW_S = 600
"""Seconds of a trial above which a CPU is too slow for a search."""


def slow_on_cpu(menu: ProxyMenu, settings: CampaignSettings, info: CorpusInfo) -> str:
    """Return a warning that trials of the menu's defaults take very long on this CPU; empty if they
    do not."""
    baseline = gpt(menu.baseline)
    steps = settings.budget.steps(baseline.tokens_per_step)
    if steps is None:  # the budget is in seconds
        return ""
    flops = TrainingFlops.of(baseline, vocab_size=info.vocab_size, seq_len=baseline.seq_len)
    cores = settings.threads or len(usable_cores())
    trial_s = steps * baseline.tokens_per_step * flops.per_token / (cores * CORE_FLOPS)
    if trial_s < SLOW_S:
        return ""
    params = parameter_count(baseline, info.vocab_size)
    return (
        f"slow      on {counted(cores, 'core')} a trial of {millions_text(params)} parameters "
        f"takes about {duration_text(trial_s)}, and {duration_text(settings.trial_wall_s)} are its "
        "limit; use a GPU, or a menu of a smaller model such as cpu-tiny"
    )


def _lanes(campaign: Campaign, executor: Executor) -> str:
    settings, lanes = campaign.settings, executor.places
    if settings.executor != "local":
        return f"{counted(lanes, 'trial')} at once, on the cluster {settings.executor}"
    if settings.device != "cpu":
        return f"{lanes} trials at once, each on a GPU of its own"
    cores = counted(len(shares(usable_cores(), lanes)[0]), "core")
    return f"{lanes} trials at once, each on {cores} of {len(usable_cores())}"


def crowding(lanes: int, trial_gib: float | None, shared_gib: float) -> str:
    """Return a warning about memory; empty if all trials fit.

    A trial's own memory limit does not depend on the number of lanes, since a trial that passed on
    one lane must not fail on several. If the machine's reserve is touched, every running trial
    ends, also those that did not cause it.

    :param trial_gib: memory limit of each trial; None for no limit of its own.
    :param shared_gib: memory available to all of them, without the reserve.
    """
    if lanes == 1 or trial_gib is None or lanes * trial_gib <= shared_gib:
        return ""
    return (
        f"{lanes} trials of {trial_gib:g} GiB are more than the {shared_gib:.1f} GiB here without "
        "the reserve; one trial may then end all that run beside it; ask for less "
        "--trial-memory-gib or fewer lanes"
    )


STRESS_STEPS = 1000
"""Steps of a long run, if the campaign has no horizon."""
TOKENS_PER_PARAMETER = 20
"""Training tokens per parameter of a compute-optimal run (Hoffmann et al. 2022, arXiv 2203.15556).
"""
AS_GOOD_AS_NEW = 4.0


def phases_of(
    menu: ProxyMenu, settings: CampaignSettings, target_tokens: int | None = None
) -> dict[str, int]:
    """Return the training tokens of each phase that a campaign of these settings leads to, by name,
    at the baseline's tokens per step.

    They are its short runs, unless the budget is in seconds; the stress test; the ladder's rung of
    the baseline's size; and the target, if it is known.
    """
    baseline = gpt(menu.baseline)
    a_step = baseline.tokens_per_step
    found: dict[str, int] = {}
    if a_trial := trial_tokens(menu, settings):
        found[f"{settings.budget} a trial"] = a_trial
    long_steps = settings.horizon_steps or STRESS_STEPS
    found[f"stress of {long_steps:,} steps"] = long_steps * a_step
    # Count parameters as a ladder does: without tables, which learn one token at a time.
    params = baseline.n_layer * block_weights(baseline)
    found[f"ladder at {TOKENS_PER_PARAMETER} tokens a parameter"] = TOKENS_PER_PARAMETER * params
    return found if target_tokens is None else found | {"target": target_tokens}


def trial_tokens(menu: ProxyMenu, settings: CampaignSettings) -> int | None:
    """Return the tokens of a trial of the baseline; None for a budget in seconds, whose steps are
    not known beforehand."""
    budget = settings.budget
    if budget.unit == "seconds":
        return None
    each = gpt(menu.baseline).tokens_per_step if budget.unit == "steps" else 1
    return int(budget.amount) * each


def night_tokens(menu: ProxyMenu, settings: CampaignSettings, iters: int) -> int | None:
    """Return the tokens of all trials of so many iterations; None for a budget in seconds."""
    a_trial = trial_tokens(menu, settings)
    return None if a_trial is None else round(iters * RUNS_PER_ITERATION) * a_trial


def epochs_text(epochs: float) -> str:
    """Format epochs: ``0.004``, ``1.3``, ``14,000``."""
    return f"{epochs:.2g}" if epochs < 10 else f"{float(f'{epochs:.2g}'):,.0f}"


def warnings(epochs: Mapping[str, float], corpus: CorpusInfo) -> Iterator[str]:
    """Yield a sentence for each phase that the corpus is too small for, by the epochs of each."""
    for name, times in epochs.items():
        if times > AS_GOOD_AS_NEW:
            yield (
                f"the corpus {corpus.name} is too small for {name}: its {corpus.train_tokens:,} "
                f"tokens would be gone through {epochs_text(times)} times; beyond four times they "
                "teach less than new text, beyond sixteen next to nothing; use a larger one for it"
            )
