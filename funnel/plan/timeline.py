"""Compute the days that a target's training takes on owned units.

    tokens/s = units × scaling × FLOP/s / FLOPs per token
    days     = tokens / (tokens/s × 86,400)

FLOPs per token count the half of the attention that a causal mask leaves. A unit's FLOP/s are those
of the measured model. The parallelism is that of :mod:`funnel.plan.layout`, with one GPU per unit.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from funnel.cost.figures import CostFigure, CostSection, View
from funnel.cost.gpus import GB10, find_gpu, hourly_usd
from funnel.cost.rates import GPUS_PER_NODE, SPARK_PARAMS, Rates
from funnel.ladder.shapes import timed_trials
from funnel.plan.booking import DAY_S, make_booking
from funnel.plan.layout import GB, USABLE, Cluster, layouts
from funnel.plan.utilisation import fastest, utilisation
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.shape import size_text
from funnel.transfer.rules import batches
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import GIB
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow


@dataclass(frozen=True, slots=True)
class UnitSpeed:
    """The measured training speed of a unit, in tokens per second, on a model of given FLOPs per
    token."""

    tokens_per_s: float
    flops_per_token: float
    """FLOPs per token with the causal half of the attention; see :mod:`trainer.machine.flops`."""
    source: str

    @property
    def tflops(self) -> float:
        return self.tokens_per_s * self.flops_per_token / 1e12


def rated_speed(rates: Rates) -> UnitSpeed:
    """Return the speed of SPARK_TFLOPS, on the model that it was published for."""
    flops = 6 * SPARK_PARAMS
    return UnitSpeed(rates.spark_tflops * 1e12 / flops, flops, "SPARK_TFLOPS")


def own_arithmetic(rates: Rates, name: str = "llama-7b") -> tuple[float, float]:
    """Return the hours and USD of a target's run on the node that FINAL_NODE_HOURS supposes, by a
    launch plan's own arithmetic."""
    target, cluster = load_target(name), Cluster(nodes=1, gpus=GPUS_PER_NODE, gpu=find_gpu("h100"))
    batch = round(batches(target.tokens, target.seq_len)["step_law"] / target.seq_len)
    memory = fastest(layouts(target, cluster, batch, fp8=False), target, cluster, fp8=False)
    speed = utilisation(target, memory.layout, cluster, fp8=False)
    usd = hourly_usd(cluster.gpu, rates)
    compute = make_booking(target, cluster, mfu=speed, gpu_hourly_usd=usd).compute
    return compute.hours, compute.cost_usd


def measured_speed(directory: Path) -> UnitSpeed:
    """Return the highest speed in FLOP/s of this campaign's configs, each by its trials' median.

    :raises CampaignError: if the campaign has no measured trial.
    """
    rows = list(read_rows(directory / JOURNAL_FILE))
    first = next(iter(rows), None)
    vocab = first.text.vocab_size if isinstance(first, CampaignRow) else 0
    speeds: dict[str, list[float]] = defaultdict(list)
    flops: dict[str, float] = {}
    for config, result in timed_trials(rows):
        name = config.config_hash
        counted = TrainingFlops.of(config, vocab_size=vocab, seq_len=config.seq_len)
        flops[name] = counted.causal_per_token
        speeds[name].append(result.tokens_per_s)
    found = [
        UnitSpeed(
            median(seen),
            flops[name],
            f"{directory}: the median of {len(seen)} trials of config {name[:8]}",
        )
        for name, seen in speeds.items()
    ]
    if not found:
        raise CampaignError(
            f"{directory} has no measured trial to take a speed from; leave --campaign out to use "
            "the published speed"
        )
    return max(found, key=lambda speed: speed.tflops)


def timeline_view(target: TargetArchitecture, speed: UnitSpeed, rates: Rates, units: int) -> View:
    """Return the view of the days on owned units."""
    unit = GB10.model_copy(update={"memory_gb": rates.spark_gib * GIB / GB})
    cluster = Cluster(nodes=units, gpus=1, gpu=unit)
    asked: dict[str, float] = {"tokens": target.tokens, "units": units}
    asked |= {"efficiency": rates.spark_scaling, "device_gib": rates.spark_gib}
    per_token = target.flops.causal_per_token
    tokens_per_s = units * rates.spark_scaling * speed.tflops * 1e12 / per_token
    fitting = (use for use in layouts(target, cluster, units, fp8=False) if use.is_usable)
    memory = next(fitting, None)
    days = target.tokens / tokens_per_s / DAY_S if memory else None
    parallelism = str(memory.layout) if memory else "fits no layout"
    whole = {
        "seq_len": target.seq_len,
        "share": 1.0,
        "tokens": float(target.tokens),
        "flops_per_token": per_token,
        "tokens_per_s": tokens_per_s,
        "days": days,
        "parallelism": parallelism,
        "fits": memory is not None,
    }
    label = f"all: sequences of {target.seq_len:,}, {parallelism}"
    formula = f"{size_text(target.tokens)} tokens / {tokens_per_s:,.4g} a second"
    if memory is None:
        formula = "too little memory; context parallelism, ZeRO 2 and 3 and FSDP are left out"
    title = f"days of {target.name}, units: {units}"
    return View(
        inputs={
            "target": target.name,
            "params": target.total_params,
            "asked": asked,
            "speed": asdict(speed) | {"tflops": speed.tflops},
            "phases": [whole],
            "days": days,
        },
        sections=(
            CostSection(
                "days_by_phase", title, (CostFigure("all", label, days, formula, "count"),)
            ),
        ),
        assumptions=(
            f"a unit reaches {speed.tflops:.3g} TFLOP/s ({speed.source}) on the target, too; "
            "larger matrices are usually faster, long contexts slower",
            f"{USABLE:.0%} of a unit's {rates.spark_gib:g} GiB can be used (SPARK_GIB)",
            f"units keep {rates.spark_scaling:.0%} of their speed together (SPARK_SCALING)",
        ),
    )
