"""Convert knobs' values to the parameters that Optuna's samplers set in their place.

A sampler sets the index of a number among a :class:`OrderedChoices`'s in ascending order: batch
sizes 2, 4 and 8 are neighbors, and a density over unordered categories would not know it.
"""

from optuna.distributions import BaseDistribution, IntDistribution

from autoresearch.domains.base import Domain
from autoresearch.domains.choices import OrderedChoices
from autoresearch.values import Scalar


def distribution_of(domain: Domain) -> BaseDistribution:
    """Return Optuna's distribution over the domain's parameter."""
    if isinstance(domain, OrderedChoices):
        return IntDistribution(0, len(domain.choices) - 1)
    return domain.distribution()


def parameter_of(domain: Domain, value: Scalar) -> Scalar | None:
    """Return the parameter of a value; None for one outside the domain."""
    if not domain.contains(value):
        return None
    return _ascending(domain).index(value) if isinstance(domain, OrderedChoices) else value


def value_of(domain: Domain, parameter: Scalar) -> Scalar:
    """Return the value to propose for a parameter that a sampler has set."""
    if isinstance(domain, OrderedChoices):
        return _ascending(domain)[int(parameter)]
    return domain.rounded(parameter)


def _ascending(domain: OrderedChoices) -> tuple[Scalar, ...]:
    return tuple(sorted(domain.choices))
