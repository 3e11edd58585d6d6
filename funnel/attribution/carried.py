"""List the search's changes: their worth, and whether they are carried to the target."""

from collections.abc import Iterator, Mapping

from agent.menu.proxy_menu import ProxyMenu
from autoresearch.values import Frozen, Scalar
from autoresearch.words import scalar_text
from funnel.attribution.result import AttributionResult, worth_words
from funnel.attribution.worth import EstimatedWorth
from funnel.targets.architecture import TargetArchitecture
from funnel.targets.carried_shape import CarriedRatio, CarriedShape, carry_shape
from funnel.targets.ratios import RATIOS, RatioName
from trainer.schema import Config, gpt

OF_FIELDS: Mapping[str, RatioName] = {
    "d_model": "depth_width",
    "n_layer": "depth_width",
    "n_head": "head_dim",
    "n_kv_head": "kv_group",
    "d_ff": "ffn_ratio",
    **{ratio.knob: name for name, ratio in RATIOS.items() if name != "init_scale"},
}
"""The ratio that a knob decides, in a menu of ratios or in one whose knobs are the fields."""
NOT_MEASURED = "not measured; autoresearch attribute does"


class CarriedChange(Frozen):
    """One knob in which the winner differs from the baseline."""

    knob: str
    baseline: Scalar
    winner: Scalar
    worth: EstimatedWorth | None
    """The loss in score without the change; None if it was not measured."""
    worth_said: str
    is_carried: bool
    how: str
    """How the change reaches the target, or why it is dropped."""


def shape_of_winner(
    winner: Config,
    target: TargetArchitecture,
    menu: ProxyMenu,
    vocab_size: int,
    measured: AttributionResult | None,
) -> CarriedShape:
    """Return the target's shape with the winner's ratios, without those that were measured to harm.

    :param vocab_size: vocabulary size of the proxies.
    :raises TargetError: if no whole-numbered shape of the target's size has them.
    """
    harmful = measured.harmful if measured else ()
    return carry_shape(
        winner,
        target,
        baseline=gpt(menu.baseline),
        vocab_size=vocab_size,
        left=[OF_FIELDS[knob] for knob in harmful if knob in OF_FIELDS],
    )


def carried_changes(
    winner: Config,
    menu: ProxyMenu,
    shape: CarriedShape,
    rules: Mapping[str, tuple[Scalar, str]],
    measured: AttributionResult | None,
) -> Iterator[CarriedChange]:
    """Yield every knob in which the winner differs from the baseline, in the menu's order.

    :param rules: the value at the target of each field of the recipe, and the rule that gives it.
    """
    ratios = {ratio.name: ratio for ratio in shape.ratios}
    worths = {change.knob: change for change in measured.changes} if measured else {}
    own, theirs = menu.knob_values(winner), menu.knob_values(menu.baseline)
    for knob, value in own.items():
        if value == theirs[knob]:
            continue
        is_carried, how = _fate(knob, ratios, rules)
        worth = worths.get(knob)
        yield CarriedChange(
            knob=knob,
            baseline=theirs[knob],
            winner=value,
            worth=worth.worth if worth else None,
            worth_said=worth_words(worth) if worth else NOT_MEASURED,
            is_carried=is_carried,
            how=how,
        )


def _fate(
    knob: str,
    ratios: Mapping[RatioName, CarriedRatio],
    rules: Mapping[str, tuple[Scalar, str]],
) -> tuple[bool, str]:
    if knob in OF_FIELDS:
        name = OF_FIELDS[knob]
        if name not in ratios:
            return False, f"{name} is the baseline's all the same"
        ratio = ratios[name]
        if not ratio.is_carried:
            return False, ratio.how
        before, after = scalar_text(ratio.before), scalar_text(ratio.after)
        return True, f"{name} {before} → {after}: {ratio.how}"
    if knob == "seq_len":
        return False, "dropped: the target has sequences of its own"
    if knob not in rules:
        return False, "dropped: no rule carries it"
    value, rule = rules[knob]
    return True, f"{scalar_text(value)}: {rule}"
