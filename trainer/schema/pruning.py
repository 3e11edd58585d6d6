"""Stop a trial whose curve shows that its config is futile."""

from collections import deque
from statistics import fmean

from autoresearch.values import Frozen, Positive, PositiveInt

_REPEATED = 10_000
"""Points that are kept at least, since a command may print a step several times."""


class PruneRule(Frozen):
    """Rule to stop a trial if the mean training loss of the last ``window`` steps up to ``at_step``
    exceeds ``max_loss`` (nats per token): its config is then futile by its reference's curves."""

    at_step: PositiveInt
    window: PositiveInt
    max_loss: Positive


class Pruner:
    """Checks a curve as it grows, of any trainer."""

    def __init__(self, rule: PruneRule | None) -> None:
        self._rule = rule
        self._recent: deque[tuple[int, float]] = deque(
            maxlen=0 if rule is None else max(rule.window, _REPEATED)
        )
        self._asked = False
        self.why = ""
        """Why the trial is futile; empty while it is not."""

    def take(self, step: int, loss: float) -> None:
        """Add one point."""
        rule = self._rule
        if rule is None or self._asked:
            return
        self._recent.append((step, loss))
        if step < rule.at_step:
            return
        self._asked = True
        window = range(rule.at_step - rule.window + 1, rule.at_step + 1)
        seen = [loss for step, loss in self._recent if step in window]
        if seen and fmean(seen) > rule.max_loss:
            self.why = (
                f"the mean training loss about step {rule.at_step} was {fmean(seen):.4g}, above the"
                f" {rule.max_loss:.4g} at which a config is futile by its reference's curves"
            )
