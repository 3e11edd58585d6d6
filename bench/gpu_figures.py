"""Summarize the laps on a GPU: a table with a column per candidate, and the goals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from autoresearch.errors import SpecError
from bench.figure import Figure
from bench.gpu_race import DEFAULT, Lap, Start, Task
from trainer.machine.ceiling import Ceiling
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import AnalyticMemory
from trainer.schema import TrialOk

REFERENCE = "reference"
UTILISATION_GOAL_PCT = 55.0
SPEED_GOAL = 1.5
MEMORY_GOAL = 0.5
TRIAL_GOAL = 1.5


@dataclass(frozen=True, slots=True)
class Standing:
    """One candidate's laps, by their medians."""

    name: str
    laps: Sequence[Lap]
    flops: TrainingFlops
    ceiling: Ceiling

    def middle(self, value: Callable[[TrialOk], float]) -> float:
        """Return the median of a figure of the results."""
        return median(value(lap.result) for lap in self.laps)

    def wall_s(self, start: Start) -> float | None:
        """Return the median time from spec to result; None if no lap started so."""
        walls = [lap.wall_s for lap in self.laps if lap.start == start]
        return median(walls) if walls else None

    @property
    def trial_s(self) -> float:
        """Return the time from spec to result in normal use: warm if possible."""
        warm, cold = self.wall_s("warm"), self.wall_s("cold")
        return warm if warm is not None else cold or 0.0

    @property
    def step_ms(self) -> float:
        return self.middle(lambda result: result.step_ms)

    @property
    def tokens_per_s(self) -> float:
        """Return the steady rate: the tokens of a step over the median step time."""
        first = self.laps[0].result
        return 1000 * first.tokens / first.steps / self.step_ms

    @property
    def peak_gib(self) -> float:
        return self.middle(lambda result: result.peak_mem_gib)

    @property
    def reserved_gib(self) -> str:
        """Return the allocator's reserved memory; empty on a CPU, which has none."""
        held = [lap.result.peak_reserved_gib for lap in self.laps]
        known = [gib for gib in held if gib is not None]
        return f"{median(known):.2f}" if known else ""

    @property
    def utilisation_pct(self) -> float:
        return self.ceiling.utilisation_pct(self.flops.per_token, self.tokens_per_s)

    @property
    def causal_utilisation_pct(self) -> float:
        return self.ceiling.utilisation_pct(self.flops.causal_per_token, self.tokens_per_s)

    @property
    def spread(self) -> str:
        """Return the range of the laps' step times."""
        steps_ms = [lap.result.step_ms for lap in self.laps]
        return f"{len(steps_ms)} laps, {min(steps_ms):.1f} to {max(steps_ms):.1f} ms a step"


def standings(laps: Sequence[Lap], task: Task, ceiling: Ceiling) -> list[Standing]:
    """Return one for each candidate that has a lap, in the order of their first laps."""
    flops = TrainingFlops.of(
        task.config, vocab_size=task.corpus.info.vocab_size, seq_len=task.config.seq_len
    )
    names = dict.fromkeys(lap.candidate for lap in laps)
    return [
        Standing(name, [lap for lap in laps if lap.candidate == name], flops, ceiling)
        for name in names
    ]


ROWS: tuple[tuple[str, Callable[[Standing], str]], ...] = (
    ("step ms", lambda s: f"{s.step_ms:,.1f}"),
    ("tokens/s, steady", lambda s: f"{s.tokens_per_s:,.0f}"),
    ("% of the ceiling", lambda s: f"{s.utilisation_pct:.1f}"),
    ("the same, causal", lambda s: f"{s.causal_utilisation_pct:.1f}"),
    ("peak allocated GiB", lambda s: f"{s.peak_gib:.2f}"),
    ("peak reserved GiB", lambda s: s.reserved_gib),
    ("trial s, cold", lambda s: _seconds(s.wall_s("cold"))),
    ("trial s, warm", lambda s: _seconds(s.wall_s("warm"))),
    ("  of it set-up s", lambda s: f"{s.middle(lambda r: r.setup_s):.1f}"),
    ("  of it training s", lambda s: f"{s.middle(lambda r: r.train_s):.1f}"),
    ("  of it scoring s", lambda s: f"{s.middle(lambda r: r.eval_s):.1f}"),
    ("first loss", lambda s: f"{s.middle(lambda r: r.train_loss_first):.3f}"),
    ("last loss", lambda s: f"{s.middle(lambda r: r.train_loss_last):.3f}"),
    ("val_bpb", lambda s: f"{s.middle(lambda r: r.val_bpb):.4f}"),
    ("laps", lambda s: str(len(s.laps))),
)
"""The table's rows; set-up, training and scoring are medians over all laps, cold ones included."""


def table(ranks: Sequence[Standing]) -> list[str]:
    """Return the table's lines, with a row per quantity and a column per candidate."""
    columns = [["", *(name for name, _ in ROWS)]]
    columns += [[one.name, *(text(one) for _, text in ROWS)] for one in ranks]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        head, *values = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join((head, *values)))
    return lines


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


# --- figures ------------------------------------------------------------------------------------


def figures(ranks: Sequence[Standing], task: Task, ceiling: Ceiling) -> list[Figure]:
    """Return the ceiling, the default candidate's four goals, and comparisons of all others.

    Every other variant is compared with the default and with the reference.
    """
    found = _ceiling_figures(ceiling)
    ours = next((one for one in ranks if one.name == DEFAULT), None)
    reference = next((one for one in ranks if one.name == REFERENCE), None)
    if ours is not None:
        found += [_utilisation(ours), *_against(ours, reference), *_memory_estimates(ranks, task)]
        found += [
            Figure(
                f"{one.name} over {ours.name}",
                one.tokens_per_s / ours.tokens_per_s,
                "×",
                note=f"steady tokens/s; peak {one.peak_gib - ours.peak_gib:+.2f} GiB; trial "
                f"{one.trial_s:.1f} s against {ours.trial_s:.1f} s; val_bpb "
                f"{one.laps[-1].result.val_bpb - ours.laps[-1].result.val_bpb:+.4f}"
                + _beside(one, reference),
            )
            for one in ranks
            if one is not ours and one.name != REFERENCE
        ]
    return found


def _beside(one: Standing, reference: Standing | None) -> str:
    """Compare a variant with the reference; the goals apply only to the default."""
    if reference is None:
        return ""
    return (
        f"; over the reference {one.tokens_per_s / reference.tokens_per_s:.2f} × tokens/s,"
        f" {one.peak_gib / reference.peak_gib:.2f} × peak,"
        f" {reference.trial_s / one.trial_s:.2f} × as fast from spec to val_bpb"
    )


def _ceiling_figures(ceiling: Ceiling) -> list[Figure]:
    sizes = ", ".join(f"{one.size}: {one.tflops:.4g}" for one in ceiling.products)
    return [
        Figure(
            f"ceiling, {ceiling.dtype} matrix product",
            ceiling.tflops,
            "TFLOP/s",
            note=f"square, normal random numbers, median by size: {sizes}",
        ),
        Figure("ceiling, copy", ceiling.copy_gb_per_s, "GB/s", note="read and written"),
    ]


def _utilisation(ours: Standing) -> Figure:
    return Figure(
        f"utilisation, {ours.name}",
        ours.utilisation_pct,
        "% of the ceiling",
        f"≥ {UTILISATION_GOAL_PCT:g}",
        ours.utilisation_pct >= UTILISATION_GOAL_PCT,
        f"6 N + 12 L D T; with causal attention counted half {ours.causal_utilisation_pct:.1f} %; "
        + ours.spread,
    )


def _against(ours: Standing, reference: Standing | None) -> list[Figure]:
    """Return the figures whose goals need the reference."""
    if reference is None:
        return []
    speed = ours.tokens_per_s / reference.tokens_per_s
    memory = ours.peak_gib / reference.peak_gib
    trial = reference.trial_s / ours.trial_s
    found = [
        Figure(
            f"tokens/s, {ours.name} over the reference",
            speed,
            "×",
            f"≥ {SPEED_GOAL:g}",
            speed >= SPEED_GOAL,
            f"{ours.tokens_per_s:,.0f} against {reference.tokens_per_s:,.0f}, steady; "
            f"reference: {reference.spread}",
        ),
        Figure(
            f"peak memory, {ours.name} over the reference",
            memory,
            "×",
            f"≤ {MEMORY_GOAL:g}",
            memory <= MEMORY_GOAL,
            f"{ours.peak_gib:.2f} against {reference.peak_gib:.2f} GiB allocated",
        ),
        Figure(
            f"spec to val_bpb, the reference over {ours.name}",
            trial,
            "×",
            f"≥ {TRIAL_GOAL:g}",
            trial >= TRIAL_GOAL,
            f"{reference.trial_s:.1f} s, a process each, against {ours.trial_s:.1f} s as in a "
            "campaign: fork server, caches kept",
        ),
    ]
    cold_s = ours.wall_s("cold")
    if cold_s:
        cold = reference.trial_s / cold_s
        found.append(
            Figure(
                f"spec to val_bpb, the reference over {ours.name}, both cold",
                cold,
                "×",
                f"≥ {TRIAL_GOAL:g}",
                cold >= TRIAL_GOAL,
                f"{reference.trial_s:.1f} s against {cold_s:.1f} s, compilation included",
            )
        )
    return found


def _memory_estimates(ranks: Sequence[Standing], task: Task) -> list[Figure]:
    """Return the errors of the memory rail's predictions without an envelope."""
    found = []
    for one in ranks:
        result = one.laps[0].result
        config = task.config.model_copy(update={"precision": result.precision})
        try:
            estimate = AnalyticMemory(
                vocab_size=task.corpus.info.vocab_size,
                backend=result.backend,
                device=task.device,
                limit_gib=float("inf"),
            ).predict_gib(config)
        except SpecError:
            continue  # the reference is not a backend
        found.append(
            Figure(
                f"memory estimate's error, {one.name}",
                estimate - one.peak_gib,
                "GiB",
                note=f"predicted {estimate:.2f}, measured {one.peak_gib:.2f}",
            )
        )
    return found
