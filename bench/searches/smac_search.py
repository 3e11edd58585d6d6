"""SMAC (Lindauer et al. 2022, arXiv 2109.09831), its facade for hyperparameters, over the whole
menu: forests, expected improvement of the logarithm, local search and chance in turn.

It is no dependency: ``pip install "autoresearch[searches]"``.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, against_reference, offered
from agent.proposers.surrogate.told import Told
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import Range, WholeRange
from bench.searches.tpe import STARTUP, whom_to_tell

ASKS = 8


class SmacProposer:
    """What SMAC would try next, told the same configs as TPE."""

    def __init__(self, rails: Rails) -> None:
        self._rails = rails

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`."""
        return offered("smac", self._rails, memory, lambda rng: self._draws(rng, memory), ASKS)

    def _draws(self, rng: Random, memory: Memory) -> Iterator[Draw]:
        told = whom_to_tell(memory)
        if len(told.measured) < STARTUP:
            return
        with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            facade, space = _facade(memory, rng.getrandbits(31), Path(scratch))
            _tell(facade, space, memory, told)
            domains = memory.menu.domains
            for _ in range(ASKS):
                said = dict(facade.ask().config)
                values = {
                    name: domain.rounded(domain.normal(_value(domain, said[name])))
                    for name, domain in domains.items()
                }
                yield Draw(against_reference(memory, values), "SMAC's next")


def _facade(memory: Memory, seed: int, scratch: Path) -> tuple[Any, Any]:
    import ConfigSpace  # it takes seconds to load, and is not always installed
    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigSpace.ConfigurationSpace(seed=seed)
    space.add([_parameter(name, domain) for name, domain in memory.menu.domains.items()])
    scenario = Scenario(
        space, deterministic=True, n_trials=10**6, seed=seed, output_directory=scratch
    )
    facade = Facade(
        scenario,
        lambda _config, seed=0: float(seed),
        initial_design=Facade.get_initial_design(scenario, n_configs=1),
        overwrite=True,
        logging_level=logging.ERROR,
    )
    return facade, space


def _tell(facade: Any, space: Any, memory: Memory, told: Told) -> None:
    from ConfigSpace import Configuration
    from smac.runhistory.dataclasses import TrialInfo, TrialValue
    from smac.runhistory.enumerations import StatusType

    worst = max(entry.mean for entry in told.measured)
    scored = [(entry, entry.mean, StatusType.SUCCESS) for entry in told.measured]
    failed = [(entry, worst, StatusType.CRASHED) for entry in told.failed]
    for entry, cost, status in (*scored, *failed):
        values = memory.menu.knob_values(entry.config)
        if not all(domain.contains(values[name]) for name, domain in memory.menu.domains.items()):
            continue
        said = {name: _said(domain, values[name]) for name, domain in memory.menu.domains.items()}
        info = TrialInfo(Configuration(space, values=said), seed=0)
        facade.tell(info, TrialValue(cost=cost, status=status), save=False)


def _parameter(name: str, domain: Domain) -> Any:
    import ConfigSpace

    if isinstance(domain, Ladder):
        return ConfigSpace.OrdinalHyperparameter(name, sorted(domain.choices))
    if isinstance(domain, Choices):
        return ConfigSpace.CategoricalHyperparameter(name, [str(one) for one in domain.choices])
    assert isinstance(domain, Range), f"{domain} has no order and no choices"
    log = domain.scale == "log"
    if isinstance(domain, WholeRange):
        if not log and domain.step > 1:
            steps = range(int(domain.low), int(domain.high) + 1, int(domain.step))
            return ConfigSpace.OrdinalHyperparameter(name, list(steps))
        return ConfigSpace.Integer(name, (int(domain.low), int(domain.high)), log=log)
    return ConfigSpace.Float(name, (float(domain.low), float(domain.high)), log=log)


def _said(domain: Domain, value: Any) -> Any:
    return str(value) if isinstance(domain, Choices) and not isinstance(domain, Ladder) else value


def _value(domain: Domain, said: Any) -> Any:
    """The domain's own value again."""
    if isinstance(domain, Choices) and not isinstance(domain, Ladder):
        return next(one for one in domain.choices if str(one) == str(said))
    if isinstance(domain, Ladder | WholeRange):
        return type(domain.low if isinstance(domain, WholeRange) else domain.choices[0])(said)
    return float(said)
