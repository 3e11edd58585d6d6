"""Print the lines that a session begins with: what it trains, where, and within which limits.

They include the epochs that each phase makes over the corpus. Up to four epochs of one text train
nearly as well as new text would. The value of further epochs falls towards nothing at about sixteen
(Muennighoff et al. 2023, arXiv 2305.16264, section 5). A ranking by runs that repeat their text
also measures how well a config tolerates repetition.
"""

from collections.abc import Iterator, Sequence

from agent.menu.proxy_menu import ProxyMenu
from agent.search.campaign import Campaign
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import read_environment
from agent.workbench.console import print_lines
from agent.workbench.session import Session
from autoresearch.values import Frozen, PositiveInt
from autoresearch.words import counted
from trainer.executors.base import Executor
from trainer.executors.placement import shares, usable_cores
from trainer.machine.flops import block_weights
from trainer.memory.estimate import device_limit, parameter_count
from trainer.spec import CorpusInfo, gpt


def greet(session: Session, *more: str, target_tokens: int | None = None) -> None:
    """Print the campaign, the trainer, the device and the limits of a session.

    :param more: further lines for this kind of work.
    :param target_tokens: token budget of the target that the campaign is for, if known.
    """
    campaign, settings = session.campaign, session.campaign.settings
    session.say(
        f"campaign  {campaign.directory} · menu {campaign.menu.name} · {settings.budget} a trial"
    )
    if session.own is None:
        info = campaign.corpus.info
        params = parameter_count(gpt(campaign.menu.baseline), info.vocab_size)
        phases = tuple(phases_of(campaign.menu, settings, target_tokens))
        epochs = (f"{one.name} {epochs_text(one.tokens / info.train_tokens)}" for one in phases)
        session.say(
            f"corpus    {info.name} · {info.tokenizer} · {info.train_bytes / 1e6:.3g} MB to train "
            f"on, {info.heldout_bytes:,} bytes held out"
        )
        session.say(
            f"size      {params / 1e6:,.3g} M parameters at the defaults, with this corpus's "
            f"vocabulary of {info.vocab_size:,}"
        )
        session.say(f"epochs    {'; '.join(epochs)}")
        print_lines(session.console, warnings(phases, info), "yellow")
    else:
        print_lines(session.console, session.own.lines())
    session.say(f"sandbox   {session.executor.describe()}")
    if session.executor.places > 1 or settings.executor != "local":
        session.say(f"lanes     {_lanes(campaign, session.executor)}")
    if settings.executor == "local" and settings.device == "cpu":  # only then is memory shared
        crowded = crowding(
            session.executor.places,
            settings.trial_memory_gib,
            device_limit("cpu").gib,
            read_environment().memory_reserve_gib,
        )
        if crowded:
            session.say(crowded, "yellow")
    memory, telemetry = session.memory.description, session.telemetry
    print_lines(session.console, (f"memory    {memory}", f"telemetry {telemetry}", *more))
    notices = (campaign.note, campaign.journal.repaired, campaign.history.note)
    print_lines(session.console, filter(None, notices), "yellow")


def _lanes(campaign: Campaign, executor: Executor) -> str:
    settings, lanes = campaign.settings, executor.places
    if settings.executor != "local":
        return f"{counted(lanes, 'trial')} at once, on the cluster {settings.executor}"
    if settings.device != "cpu":
        return f"{lanes} trials at once, each on a GPU of its own"
    cores = len(shares(usable_cores(), lanes)[0])
    own = "of its own" if lanes * cores <= len(usable_cores()) else "that others have too"
    return f"{lanes} trials at once, each on {counted(cores, 'core')} {own}"


def crowding(lanes: int, trial_gib: float | None, total_gib: float, reserve_gib: float) -> str:
    """Return a warning about memory; empty if all trials fit.

    A trial's own memory limit does not depend on the number of lanes, since a trial that passed on
    one lane must not fail on several. The reserve belongs to the machine: if it is touched, every
    running trial ends, also those that did not cause it.

    :param trial_gib: memory limit of each trial; None for no limit of its own.
    :param total_gib: memory available to all of them, including the reserve.
    """
    if lanes == 1 or trial_gib is None or lanes * trial_gib + reserve_gib <= total_gib:
        return ""
    most_gib = (total_gib - reserve_gib) / lanes
    together = (
        f"{lanes} trials of {trial_gib:g} GiB and a reserve of {reserve_gib:g} GiB are more than "
        f"the {total_gib:.1f} GiB here; one trial may then end all that run beside it"
    )
    if most_gib <= 0:
        return f"{together}; ask for fewer lanes"
    return f"{together}; ask for --trial-memory-gib {most_gib:.1f} or less, or for fewer lanes"


STRESS_STEPS = 1000
"""Steps of a long run, if the campaign has no horizon."""
TOKENS_PER_PARAMETER = 20
"""Training tokens per parameter of a compute-optimal run (Hoffmann et al. 2022, arXiv 2203.15556).
"""
AS_GOOD_AS_NEW = 4.0
WORTH_NOTHING = 16.0


class Phase(Frozen):
    """A kind of run that will train on a corpus."""

    name: str
    tokens: PositiveInt


def phases_of(
    menu: ProxyMenu, settings: CampaignSettings, target_tokens: int | None = None
) -> Iterator[Phase]:
    """Yield the phases that a campaign of these settings leads to, each at the baseline's tokens
    per step.

    They are its short runs, unless the budget is in seconds; the stress test; the ladder's rung of
    the baseline's size; and the target, if it is known.
    """
    baseline = gpt(menu.baseline)
    a_step = baseline.tokens_per_step
    budget = settings.budget
    if budget.unit != "seconds":  # the number of steps in so many seconds is not known beforehand
        each = a_step if budget.unit == "steps" else 1
        yield Phase(name=f"{budget} a trial", tokens=int(budget.amount) * each)
    long_steps = settings.horizon_steps or STRESS_STEPS
    yield Phase(name=f"stress of {long_steps:,} steps", tokens=long_steps * a_step)
    # Count parameters as a ladder does: without tables, which learn one token at a time.
    params = baseline.n_layer * block_weights(baseline)
    yield Phase(
        name=f"ladder at {TOKENS_PER_PARAMETER} tokens a parameter",
        tokens=TOKENS_PER_PARAMETER * params,
    )
    if target_tokens is not None:
        yield Phase(name="target", tokens=target_tokens)


def epochs_text(epochs: float) -> str:
    """Format epochs: ``0.004``, ``1.3``, ``14,000``."""
    return f"{epochs:.2g}" if epochs < 10 else f"{float(f'{epochs:.2g}'):,.0f}"


def warnings(phases: Sequence[Phase], corpus: CorpusInfo) -> Iterator[str]:
    """Yield a sentence for each phase that the corpus is too small for."""
    for phase in phases:
        epochs = phase.tokens / corpus.train_tokens
        if epochs <= AS_GOOD_AS_NEW:
            continue
        worth = (
            "and what is repeated beyond sixteen times teaches next to nothing"
            if epochs > WORTH_NOTHING
            else "and beyond four times it teaches less than new text would"
        )
        yield (
            f"the corpus {corpus.name} is too small for {phase.name}: its "
            f"{corpus.train_tokens:,} tokens would be gone through {epochs_text(epochs)} "
            f"times, {worth}; use a larger one for it"
        )
