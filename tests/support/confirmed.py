"""Provide a confirmation's rows without training anything."""

import random

from tests.support.rows import at, ok, trial
from trainer.schema import Config, ScoredText, TextPart, TextScore, difference
from trajectory.confirmation import FreshRuns, gains
from trajectory.confirmed import Confirmed, ConfirmedConfig, ConfirmText, FreshGain
from trajectory.rows import ConfirmedRow, ConfirmRow

PARTS = 4
SEEDS = (800, 801)
TEXT = ScoredText(
    name="set aside",
    path="/nowhere",
    sha256="5e" * 32,
    parts=(TextPart(tokens=65_537, bytes=65_536),) * PARTS,
)
TRAIN_TOKENS = 8_737_000


def told(
    config_hash: str, *found: FreshGain, claimed: float | None = None, trouble: str = ""
) -> ConfirmedConfig:
    """Return a confirmation's statement about the search's own choice."""
    return ConfirmedConfig(
        config_hash=config_hash,
        iter=7,
        rank=1,
        changes={},
        claimed=claimed,
        claimed_lo=None,
        claimed_hi=None,
        gains=found,
        trouble=trouble,
    )


def confirmation(
    number: int,
    baseline: Config,
    finalists: dict[int, Config],
    *,
    gain: float = 0.3,
) -> tuple[list[ConfirmRow], ConfirmedRow]:
    """Return a confirmation's runs and its conclusion.

    :param number: the first trial's number.
    :param finalists: by the iteration that proposed each; the first is the search's own choice.
    :param gain: each finalist's gain over the baseline.
    """
    rng = random.Random(number)
    rows: list[ConfirmRow] = []
    runs: dict[str, FreshRuns] = {}
    for place, config in enumerate((baseline, *finalists.values()), start=1):
        level = 3.0 if config is baseline else 3.0 - gain
        results = {}
        for seed in SEEDS:
            parts = tuple(level + rng.gauss(0, 0.01) for _ in range(PARTS))
            score = TextScore(
                sha256=TEXT.sha256,
                val_bpb=sum(parts) / PARTS,
                val_bytes=TEXT.bytes,
                val_tokens=TEXT.tokens - PARTS,
                parts_bpb=parts,
            )
            results[seed] = ok(level + rng.gauss(0, 0.02), texts=(score,))
            run = trial(number + len(rows), config, seed, results[seed], "confirm")
            rows.append(
                ConfirmRow(
                    at=at(number + len(rows)),
                    rank=place,
                    train_tokens=TRAIN_TOKENS,
                    seeds=len(SEEDS),
                    config=config,
                    config_hash=config.config_hash,
                    trial=run,
                )
            )
        runs[config.config_hash] = FreshRuns(results)
    found = Confirmed(
        seeds=SEEDS,
        texts=(ConfirmText(name=TEXT.name, sha256=TEXT.sha256, bytes=TEXT.bytes, parts=PARTS),),
        configs=tuple(
            ConfirmedConfig(
                config_hash=config.config_hash,
                iter=iteration,
                rank=place,
                changes=difference(config, baseline),
                claimed=-1.2 * gain,
                claimed_lo=-1.5 * gain,
                claimed_hi=-0.9 * gain,
                gains=gains(
                    runs[config.config_hash],
                    runs[baseline.config_hash],
                    [TEXT],
                    finalists=len(finalists),
                ),
            )
            for place, (iteration, config) in enumerate(finalists.items(), start=1)
        ),
    )
    return rows, ConfirmedRow(at=at(number + len(rows) + 1), found=found)
