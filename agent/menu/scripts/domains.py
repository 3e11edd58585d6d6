"""Suggest a domain for an option by what its name means, its default and the script's own checks.

The ranges are wide enough to find a better value and narrow enough to train mostly: a decade to
each side for values that act by their order of magnitude, a factor of four for sizes. They are
drafts; none was fitted to data. A name also tells a real number that is written as a whole one:
``eta = 1``.
"""

from collections.abc import Callable
from typing import TypeAlias

from agent.menu.scripts.option import SCHEDULE, Option, says
from autoresearch.domains.base import MAX_CHOICES, Domain
from autoresearch.domains.choices import Choices, OrderedChoices
from autoresearch.domains.ranges import MAX_WHOLE, Range, RealRange, WholeRange
from autoresearch.values import Scalar

_RATE = r"lr|learning rate|eta|step size|base lr|max lr|min lr"
_SHARE = (
    r"frac|fraction|ratio|pct|percent|share|sub ?sample|col ?sample\w*|quantile|tau|keep prob|"
    r"smoothing|mixup|cutmix"
)
_FEATURES = r"max (features|samples)"
_REGULARIZES = r"(reg|l1|l2|gamma) (lambda|alpha)|reg \w+|^(lambda|alpha|c|penalty)$|lambda l[12]"
_NEAR_ONE = r"betas?|beta ?\d|betas? \d|momentum|ema|gamma|lambda|lmbda|lamda|lam|decay|polyak|rho"
_BELOW_ONE = rf"{_NEAR_ONE}|dropout|prob|probability|alpha"
_DROPOUT = r"dropout|drop|p|prob|probability|drop (path|rate|connect)"
_DECAY = r"weight ?decay|wd|l2"
_CLIP = r"clip|norm|max norm"
_DEPTH = r"(n|num)? ?layers?|depth|blocks?|stages?"
_HEADS = r"(n|num)? ?(kv )?heads?$|nheads?"
_BATCH = r"batch|batch ?size|bs|accum(ulation)?( steps)?|mini ?batch(es)?|envs"
_REAL = (
    rf"{_RATE}|{_SHARE}|{_REGULARIZES}|{_DROPOUT}|{_DECAY}|{_CLIP}|{_NEAR_ONE}|alpha|temperature|"
    r"temp|eps|epsilon|coeff?|coefficient|scale|weight|std|sigma|noise|margin|rate|loss"
)
_MOST_REAL = 10
"""Largest whole number that stands for a real one: a sample rate is 16000."""
_LOG_SPAN = 64
"""Ratio of bounds above which whole numbers use a log scale."""


def domain_of(option: Option) -> Domain | str:
    """Return the domain, or one clause why none can be suggested."""
    default = meant(option)
    if default is None:
        return "its default is None"
    if option.choices:
        return _choices(option)
    match default:
        case bool():
            return Choices(choices=(True, False))
        case str() if says(option.name, "pattern") and 2 <= len(default) <= 8:
            # The suffixes of a pattern of letters: SSSL, SSL, SL, L.
            return Choices(choices=tuple(default[place:] for place in range(len(default))))
        case str():
            return "its other possible texts are unknown"
        case int():
            domain = _of_whole(option, default)
        case float():
            domain = _of_real(option, default)
    return domain if isinstance(domain, str) else _within(domain, option, default)


def meant(option: Option) -> Scalar | None:
    """Return an option's default as what its name means: ``eta = 1`` is a real number, unless the
    script declares a whole one."""
    default = option.default
    is_small = type(default) is int and -1 <= default <= _MOST_REAL
    if is_small and option.kind in {"", "float"} and says(option.name, _REAL):
        return float(default) if isinstance(default, int) else default
    return default


def _choices(option: Option) -> Domain | str:
    choices = tuple(dict.fromkeys(option.choices))
    if option.default not in choices:
        return "its default is not among its choices"
    if len({type(one) for one in choices}) > 1 or not 2 <= len(choices) <= MAX_CHOICES:
        return "its choices are not two or more values of one type"
    numbers = tuple(
        one for one in choices if isinstance(one, int | float) and not isinstance(one, bool)
    )
    return (
        OrderedChoices(choices=numbers)
        if len(numbers) == len(choices)
        else Choices(choices=choices)
    )


# --- real numbers -------------------------------------------------------------------------------

_Rule: TypeAlias = tuple[str, Callable[[float], bool], Callable[[float], Domain | str]]


def _of_real(option: Option, default: float) -> Domain | str:
    is_chance = says(option.doc, "probability") and default <= 1
    name = f"{option.name}_probability" if is_chance else option.name
    rules = (rule for rule in _REAL_RULES if rule[1](default))
    return next(suggested(default) for names, _, suggested in rules if says(name, names))


def _near_one(default: float) -> RealRange:
    """Suggest a tenth to ten times the default's distance from 1."""
    rest = 1 - default
    return RealRange(low=_short(max(0.5, 1 - 10 * rest)), high=round(1 - _short(rest / 10), 12))


def _capped(default: float) -> RealRange:
    return RealRange(low=_short(default / 10), high=min(1.0, _short(default * 10)), scale="log")


_REAL_RULES: tuple[_Rule, ...] = (
    (r"warm ?up (lr|learning rate)", lambda v: v > 0, lambda v: _log(v, 10)),
    (_SHARE, lambda v: 0 < v <= 1, lambda v: _real(v / 4, 1.0)),
    (_FEATURES, lambda v: 0 < v <= 1, lambda v: _real(v / 4, 1.0)),
    (_SHARE, lambda v: v == 0, lambda v: _real(0.0, 1.0)),
    (_DROPOUT, lambda v: 0 <= v < 1, lambda v: _real(0.0, 0.5 if v <= 0.5 else 1.0)),
    (SCHEDULE, lambda v: v >= 0, lambda v: _real(0.0, 1.0 if v <= 1 else 2 * v)),
    (_DECAY, lambda v: v == 0 or v >= 0.01, lambda v: _real(0.0, max(5 * v, 0.3))),
    (_CLIP, lambda v: v == 0, lambda v: _real(0.0, 5.0)),
    (_REGULARIZES, lambda v: v > 0, lambda v: _log(v, 10)),
    (".*", lambda v: v == 0, lambda v: "0 does not show its scale"),
    (".*", lambda v: v < 0, lambda v: "it is negative"),
    ("eps|epsilon", lambda v: v < 0.01, lambda v: _log(v, 100)),
    ("eps|epsilon", lambda v: v <= 1, _capped),
    (_RATE, lambda v: True, lambda v: _log(v, 10)),
    (_NEAR_ONE, lambda v: 0.5 <= v < 1, _near_one),
    (_BELOW_ONE, lambda v: v < 1, _capped),
    (".*", lambda v: True, lambda v: _log(v, 10)),
)
"""Names, a condition and the domain of real numbers; the first rule that fits is used."""


def _real(low: float, high: float) -> RealRange:
    return RealRange(low=_short(low), high=_short(high))


def _log(default: float, factor: float) -> RealRange:
    return RealRange(low=_short(default / factor), high=_short(default * factor), scale="log")


def _short(value: float) -> float:
    """Round to four digits, which hide the arithmetic's last bits and keep 0.9999."""
    return float(f"{value:.4g}")


# --- whole numbers ------------------------------------------------------------------------------


def _of_whole(option: Option, default: int) -> Domain | str:
    name = option.name
    if says(name, SCHEDULE) and default >= 0:
        return WholeRange(low=0, high=2 * default or 100)
    if default > MAX_WHOLE // 4:
        return "it is very large"
    if default < 1:
        return "it is negative" if default < 0 else "0 does not show its scale"
    # Fewer than two cannot be split, and a tree needs two leaves.
    least = 2 if says(name, "samples split|(num|max) leaves|leaf nodes|bins?") else 1
    low, high = max(least, default // 2), max(4, 2 * default)
    if says(name, _DEPTH):
        return WholeRange(low=low, high=high)
    is_size = default >= 16 and (default % 8 == 0 or default & (default - 1) == 0)
    if not is_size and not says(name, f"{_BATCH}|{_HEADS}"):
        return WholeRange(low=low, high=high, scale="log" if high - low > _LOG_SPAN else "linear")
    # A quarter to four times the default by powers of two, as long as they are whole; for an odd
    # number, the powers of two around it.
    choices = {default, 2 * default, 4 * default}
    choices |= {default // part for part in (2, 4) if default % part == 0}
    if default % 2:
        choices |= {
            1 << power for power in range(default.bit_length() + 2) if 4 << power >= default
        }
    return OrderedChoices(type="int", choices=tuple(sorted(choices)))


def _within(domain: Domain, option: Option, default: Scalar) -> Domain:
    """Return the domain restricted to the script's own bounds."""
    low = option.low if option.low is not None else float("-inf")
    high = option.high if option.high is not None else float("inf")
    match domain:
        case OrderedChoices(choices=choices):
            cut: dict[str, object] = {
                "choices": tuple(one for one in choices if low <= one <= high)
            }
        case Range():
            bounds = {"low": max(domain.low, low), "high": min(domain.high, high)}
            cut = {name: type(domain.low)(bound) for name, bound in bounds.items()}
        case _:
            return domain
    within: Domain = domain.model_copy(update=cut)
    return within if within.problem() is None and within.contains(default) else domain
