"""Measure the overhead of running a trial: its start, warm and cold, and its end."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import trivial_trial
from bench.figure import Figure
from tests.support.configs import config
from trainer.executors.local import LocalExecutor
from trainer.schema import TrialFailed, TrialSpec

WARM_TRIALS = 40
COLD_TRIALS = 3


@dataclass(frozen=True, slots=True)
class _Timing:
    """Seconds of one trivial trial."""

    start_s: float
    """Time from the request to the trial's first instruction, with spec.json's sync to the disk."""
    whole_s: float
    """Time from the request to the result."""


def run() -> list[Figure]:
    """Time trivial trials, warm and cold."""
    with tempfile.TemporaryDirectory() as directory:
        warm, how = _time_trials(Path(directory, "warm"), WARM_TRIALS, is_cold=False)
        cold, _ = _time_trials(Path(directory, "cold"), COLD_TRIALS, is_cold=True)
    start_ms, whole_ms, cold_ms = (
        1e3 * median(seconds)
        for seconds in (
            [timing.start_s for timing in warm],
            [timing.whole_s for timing in warm],
            [timing.start_s for timing in cold],
        )
    )
    return [
        Figure(
            "trial start, fork server",
            start_ms,
            "ms",
            goal="<= 10",
            met=start_ms <= 10,
            note=f"request to first instruction, median of {len(warm)}; {how}",
        ),
        Figure(
            "trial start, cold",
            cold_ms,
            "ms",
            note=f"the same with a fork server of its own, median of {len(cold)}",
        ),
        Figure(
            "trial overhead",
            whole_ms,
            "ms",
            goal="<= 40",
            met=whole_ms <= 40,
            note="request to result in hand for a trial that does nothing",
        ),
    ]


def _time_trials(directory: Path, count: int, *, is_cold: bool) -> tuple[list[_Timing], str]:
    """Time trials; each cold one has a fork server of its own."""
    timings: list[_Timing] = []
    how = ""
    while len(timings) <= count:
        with LocalExecutor(entry=trivial_trial.ENTRY, allow_unsandboxed=True) as executor:
            for _ in range(1 if is_cold else count + 1):
                number = str(len(timings))
                spec = TrialSpec(
                    trial_id=number,
                    config=config(),
                    seed=0,
                    corpus_dir=str(directory / "corpus"),
                    corpus_sha256="",
                )
                asked_at = time.monotonic()
                finished = executor.run(spec, directory / "trials" / number)
                assert isinstance(finished.result, TrialFailed)
                started_at = float(finished.result.message)
                timings.append(_Timing(started_at - asked_at, finished.wall_s))
            how = executor.describe()
    return timings[1:], how  # the first one waits until the server is ready
