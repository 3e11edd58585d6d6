"""Choose one rule for each quantity on which rules disagree."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from autoresearch.values import Frozen
from funnel.transfer.batch import BatchRule
from funnel.transfer.depth import DepthRule
from funnel.transfer.horizon import HorizonRule
from funnel.transfer.support import RateRules
from funnel.transfer.warmup import WarmupRule
from funnel.transfer.weight_decay import DecayRule
from funnel.transfer.width import WidthRule


class RuleChoice(Frozen):
    """One rule for each quantity on which rules disagree."""

    width: WidthRule = "mup"
    depth: DepthRule = "depth_mup"
    """Rule of the depth; the default is ``complete_p`` if ``in_config``, else ``depth_mup``."""
    horizon: HorizonRule = "delphi"
    batch: BatchRule = "step_law"
    weight_decay: DecayRule = "power_lines"
    warmup: WarmupRule = "fraction"
    in_config: bool = False
    """Whether the carried config sets ``mup_base_width`` and ``mup_base_depth``.

    The project's own trainer reads them. The config's ``lr`` is then the rate at the base width.
    """

    @model_validator(mode="before")
    @classmethod
    def _default_depth(cls, given: Any) -> Any:
        """Set the default of ``depth``.

        The project's own trainer has multipliers on residual branches; a launcher has none.
        """
        if isinstance(given, dict) and given.get("in_config") and "depth" not in given:
            return {**given, "depth": "complete_p"}
        return given

    @property
    def rates(self) -> RateRules:
        """Rules that a ladder can test."""
        return RateRules(width=self.width, depth=self.depth, horizon=self.horizon)


DEFAULT_RULES = RuleChoice()
