"""Apply the rule that ends futile trials to a command's curve."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from trainer.spec import PruneRule


class Pruner:
    """Checks a curve as it is printed."""

    def __init__(self, rule: PruneRule | None) -> None:
        self._rule = rule
        self._recent: deque[tuple[int, float]] = deque(maxlen=0 if rule is None else 10_000)
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
