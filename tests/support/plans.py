"""Make launch plans of campaigns, and write them to a folder."""

from pathlib import Path
from typing import Any

from funnel.cost.gpus import GPUS
from funnel.cost.rates import Rates
from funnel.ladder.result import LadderResult
from funnel.plan.bundle import write_bundle
from funnel.plan.case import LaunchCase, read_case
from funnel.plan.handoff import Handoff, Wishes, make_handoff
from funnel.plan.handoff_files import handoff_files
from funnel.plan.layout import Cluster
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.transfer.rules import WidthRule


def cluster(nodes: int = 1, gpus: int = 8, gpu: str = "h100") -> Cluster:
    """Return rented GPUs."""
    return Cluster(nodes=nodes, gpus=gpus, gpu=GPUS[gpu])


def plan_of(
    campaign: Path | LaunchCase,
    target: str | TargetArchitecture = "llama-7b",
    *,
    nodes: int = 1,
    gpus: int = 8,
    ladder: LadderResult | None = None,
    lr_rule: WidthRule | None = None,
    **wishes: Any,
) -> Handoff:
    """Return the plan of a campaign, at 40 % of the peak and 128 sequences a step."""
    usual = {"mfu": 0.4, "batch": 128, "bytes_per_token": None}
    asked = load_target(target) if isinstance(target, str) else target
    return make_handoff(
        campaign if isinstance(campaign, LaunchCase) else read_case(campaign),
        asked.model_copy(update={"lr_rule": lr_rule or asked.lr_rule}),
        cluster(nodes, gpus),
        Wishes.model_validate(usual | wishes),
        Rates(),
        ladder=ladder,
    )


def written(plan: Handoff, out: Path) -> Path:
    """Write a plan's files, and return their folder."""
    write_bundle(out, handoff_files(plan, out))
    return out
