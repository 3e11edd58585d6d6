"""The board as Prometheus metrics."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainer.schema import BITS_PER_BYTE, BPB
from trajectory.live.board import Board, WatchedCampaign

PREFIX = "autoresearch_"
_FAMILIES: tuple[
    tuple[type[CounterMetricFamily | GaugeMetricFamily], list[str], dict[str, str]], ...
] = (
    (
        CounterMetricFamily,
        ["campaign"],
        {
            "iterations": "Finished iterations.",
            "keeps": "Iterations that were kept.",
        },
    ),
    (
        GaugeMetricFamily,
        ["campaign"],
        {
            "incumbent_bpb": "Estimated bits per byte of the incumbent, if that is the unit.",
            "baseline_bpb": "Estimated bits per byte of the baseline, if that is the unit.",
            "noise_sd_bpb": "Standard deviation of one run within a config, if bits per byte is "
            "the unit.",
            "iteration_seconds": "Mean wall time of the latest iterations.",
            "silent_seconds": "Seconds since any of the campaign's files changed.",
            "paused": "1 while the pause file exists.",
            "energy_watt_hours": "Energy of all finished iterations.",
            "gpu_power_watts": "Of the latest sample.",
            "gpu_utilisation_percent": "Of the latest sample.",
            "gpu_temperature_celsius": "Of the latest sample.",
        },
    ),
    (
        GaugeMetricFamily,
        ["campaign", "unit"],
        {
            "incumbent_score": "Estimated score of the incumbent, in the campaign's unit.",
            "baseline_score": "Estimated score of the baseline, in the campaign's unit.",
            "noise_sd_score": "Standard deviation of one run within a config, in the campaign's "
            "unit.",
        },
    ),
    (
        CounterMetricFamily,
        ["campaign", "status"],
        {"failed_trials": "Trials that ended without a score."},
    ),
)


def metrics_text(board: Board) -> bytes:
    """Return the board's metrics in the Prometheus text format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Collector(board))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            name: kind(PREFIX + name, text, labels=labels)
            for kind, labels, texts in _FAMILIES
            for name, text in texts.items()
        }
        with self._board.lock:
            for watched in self._board.campaigns.values():
                for name, labels, value in _samples(watched):
                    if value is not None:
                        families[name].add_metric([watched.name, *labels], value)
        yield from families.values()


def _samples(watched: WatchedCampaign) -> Iterator[tuple[str, tuple[str, ...], float | None]]:
    """Yield each metric's name, its labels besides the campaign, and its value.

    Scores are in the trainer's own direction; objectives are negated if higher is better.
    """
    status, campaign = watched.follower.status(), watched.follower.state.campaign
    measure = campaign.measured_in if campaign else BPB
    best, baseline = status.believed_objective, status.baseline_objective
    scores = {
        "incumbent": None if best is None else measure.score(best),
        "baseline": None if baseline is None else measure.score(baseline),
        "noise_sd": status.sigma,
    }
    for name, value in scores.items():
        yield f"{name}_score", (measure.unit,), value
        if measure.unit == BITS_PER_BYTE:
            yield f"{name}_bpb", (), value
    yield "iterations", (), status.iterations
    yield "keeps", (), status.keeps
    yield "iteration_seconds", (), status.pace_s
    yield "silent_seconds", (), status.silent_s
    yield "paused", (), float(status.state == "paused")
    yield "energy_watt_hours", (), status.energy_wh
    if watched.device.samples:
        sample = watched.device.samples[-1]
        yield "gpu_power_watts", (), sample.power_w
        yield "gpu_utilisation_percent", (), sample.gpu_util_pct
        yield "gpu_temperature_celsius", (), sample.temperature_c
    for reason, count in status.failures.items():
        yield "failed_trials", (reason,), count
