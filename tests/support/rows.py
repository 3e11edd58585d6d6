"""Provide journals as campaigns leave them, without training anything."""

import hashlib
import math
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.support.configs import config
from trainer.schema import Budget, Config, CorpusInfo, TrialFailed, TrialOk
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.proposals import Attempt, Proposal, ProposerRecord, Verdict
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    Decision,
    EventRow,
    Finalist,
    FinalistsRow,
    IterationRow,
    Role,
    Row,
    Rules,
    StressOutcome,
    StressPurpose,
    StressRow,
    StressVerdict,
    TrialRecord,
    dump_row,
)

BEGAN = datetime(2026, 1, 5, 22, 0, tzinfo=UTC)
SIGMA = 0.056


def at(number: int) -> str:
    return (BEGAN + timedelta(seconds=7 * number)).isoformat(timespec="milliseconds")


def ok(val_bpb: float, **changes: Any) -> TrialOk:
    values: dict[str, Any] = {
        "val_bpb": val_bpb,
        "val_bits_per_token": val_bpb,
        "val_bytes": 262144,
        "val_tokens": 262160,
        "train_loss_first": 5.561,
        "train_loss_last": val_bpb * math.log(2),
        "steps": 60,
        "tokens": 61440,
        "params": 918_528,
        "step_ms": 41.7,
        "tokens_per_s": 23104.25,
        "train_s": 2.659,
        "eval_s": 0.873,
        "setup_s": 0.061,
        "peak_mem_gib": 0.713,
        "backend": "torch",
        "device": "Intel(R) Xeon(R) Platinum 8488C",
        "precision": "bf16",
    }
    return TrialOk.model_validate(values | changes)


def failed(message: str = "the loss became nan at step 7") -> TrialFailed:
    return TrialFailed(status="nonfinite", message=message, steps=6, peak_mem_gib=0.5)


def campaign_row(campaign_id: str = "c0ffee0123456789") -> CampaignRow:
    return CampaignRow(
        id=campaign_id,
        created_at=at(0),
        menu_name="cpu-tiny",
        menu_sha256=hashlib.sha256(b"menu").hexdigest(),
        menu_toml='name = "cpu-tiny"\n' * 150,
        corpus=CorpusInfo(
            name="stdlib",
            sha256=hashlib.sha256(b"corpus").hexdigest(),
            heldout_sha256=hashlib.sha256(b"heldout").hexdigest(),
            tokenizer="bytes",
            vocab_size=257,
            separator_id=256,
            dtype="uint16",
            documents=600,
            duplicates=3,
            train_documents=580,
            train_tokens=9_000_000,
            train_bytes=8_999_420,
            heldout_documents=17,
            heldout_tokens=262_161,
            heldout_bytes=262_144,
        ),
        budget=Budget(),
        horizon_steps=1000,
        backend="torch",
        device="cpu",
        reference="incumbent",
        baseline_seeds=5,
        seed=0,
        z_keep=1.3,
        max_runs=4,
        max_changes=3,
        sandbox="landlock 4, rlimits",
        versions={"python": "3.11.7", "torch": "2.13.0"},
        hardware={"cpu": "Intel(R) Xeon(R) Platinum 8488C", "cpus": "2"},
    )


def trial(
    number: int, of: Config, seed: int, result: TrialOk | TrialFailed, role: Role = "candidate"
) -> TrialRecord:
    return TrialRecord(
        trial_id=f"t{number:06d}",
        role=role,
        config_hash=of.config_hash,
        seed=seed,
        result=result,
        wall_s=3.65,
    )


def baseline_row(number: int, val_bpb: float, seed: int, of: Config | None = None) -> BaselineRow:
    of = of or config()
    return BaselineRow(
        at=at(number),
        config=of,
        config_hash=of.config_hash,
        trial=trial(number, of, seed, ok(val_bpb), "baseline"),
    )


def iteration_row(
    iteration: int,
    of: Config | None,
    trials: tuple[TrialRecord, ...] = (),
    *,
    decision: Decision | None = None,
    changes: dict[str, Any] | None = None,
    reason: str = "a smaller step should settle faster within the budget",
    proposer: ProposerRecord | None = None,
    verdict: Verdict | None = None,
) -> IterationRow:
    return IterationRow(
        iter=iteration,
        at=at(10 + iteration),
        proposer=proposer or ProposerRecord(kind="sampler", latency_s=0.012),
        proposal=Proposal(changes=changes or {"lr": 0.002}, reason=reason),
        verdict=verdict or Verdict(allowed=True),
        config=of,
        config_hash=of.config_hash if of else None,
        trials=trials,
        decision=decision or Decision(action="discard" if trials else "none"),
        wall_s=3.7,
    )


def stress_row(
    number: int,
    of: Config,
    seed: int = 900,
    result: TrialOk | TrialFailed | float = 3.5,
    *,
    outcome: StressOutcome = "survives",
    purpose: StressPurpose = "candidate",
    rank: int = 1,
    steps: int = 1000,
) -> StressRow:
    """Return the row of a long run; a number as its result is its val_bpb."""
    if isinstance(result, float):
        result = ok(result, steps=steps, tokens=steps * of.tokens_per_step)
    return StressRow(
        at=at(number % 10_000),
        purpose=purpose,
        rank=rank,
        steps=steps,
        config=of,
        config_hash=of.config_hash,
        trial=trial(number, of, seed, result, "stress"),
        verdict=StressVerdict(
            outcome=outcome,
            step=None if outcome == "survives" else 7,
            explanation="as it was judged",
        ),
    )


class Simulator:
    """Write the rows of a campaign whose true scores it draws itself."""

    def __init__(
        self, seed: int = 0, *, tau: float = 0.05, bad: float = 0.15, sigma: float = SIGMA
    ) -> None:
        self.rng = random.Random(seed)
        self.tau, self.bad, self.sigma = tau, bad, sigma
        self.truth: dict[str, float] = {}
        """True scores by config_hash."""
        self.trials = 0

    def rows(self, iterations: int, *, stress_every: int | None = None) -> Iterator[Row]:
        """Yield a campaign row, five baselines and the iterations, with an event here and there.

        :param stress_every: iterations between stress tests of the baseline and the latest config;
            None for none.
        """
        yield campaign_row(f"{self.rng.getrandbits(64):016x}")
        baseline = config()
        self.truth[baseline.config_hash] = 4.27
        scores = {seed: self._score(baseline, seed) for seed in range(5)}
        for seed, score in scores.items():
            self.trials += 1
            yield baseline_row(self.trials, score, seed, baseline)
        for iteration in range(1, iterations + 1):
            row = self._iteration(iteration, scores)
            yield row
            if stress_every is not None and iteration % stress_every == 0:
                yield from self._stress(iteration, [baseline, row.config or baseline])
            if iteration % 50 == 0:
                yield EventRow(
                    at=at(iteration),
                    event="interrupted",
                    why="in flight when the campaign last stopped",
                    trial_ids=(f"t9{iteration:06d}",),
                )

    def _stress(self, iteration: int, configs: list[Config]) -> Iterator[Row]:
        stressed = dict.fromkeys(configs)
        for place, of in enumerate(stressed, start=1):
            failing = self.truth[of.config_hash] > 4.6
            number = 8_000_000 + 10 * iteration + place
            result = failed() if failing else self.truth[of.config_hash] - 0.8
            yield stress_row(
                number, of, 900, result, outcome="nonfinite" if failing else "survives", rank=place
            )
        best = min(stressed, key=lambda of: self.truth[of.config_hash])
        finalist = Finalist(
            config_hash=best.config_hash, objective=self.truth[best.config_hash] - 0.8, runs=1
        )
        yield FinalistsRow(
            at=at(iteration),
            steps=1000,
            finalists=(finalist,),
            spread=tuple(of.config_hash for of in stressed),
        )

    def _iteration(self, iteration: int, reference: dict[int, float]) -> IterationRow:
        rng = self.rng
        if rng.random() < 0.05:
            verdict = Verdict(allowed=False, rail="range", why="lr 3 is above its highest 0.01")
            return iteration_row(iteration, None, changes={"lr": 3}, verdict=verdict)
        changes: dict[str, Any] = {
            "lr": 10 ** rng.uniform(-4, -2),
            "beta2": round(rng.uniform(0.8, 0.999), 9),
        }
        candidate = config(**changes)
        good = rng.random() >= self.bad
        self.truth[candidate.config_hash] = (
            rng.gauss(4.25, self.tau) if good else 4.5 + rng.expovariate(2.0)
        )
        trials = self._race(candidate, reference)
        measured = {t.seed: t.objective for t in trials if t.objective is not None}
        return iteration_row(
            iteration,
            candidate,
            trials,
            changes=changes,
            decision=self._decision(measured, reference),
            proposer=self._proposer(),
        )

    def _race(self, candidate: Config, reference: dict[int, float]) -> tuple[TrialRecord, ...]:
        trials: list[TrialRecord] = []
        for seed in range(4):
            self.trials += 1
            if self.rng.random() < 0.02:
                trials.append(trial(self.trials, candidate, seed, failed()))
                break
            score = self._score(candidate, seed)
            trials.append(trial(self.trials, candidate, seed, ok(score)))
            if score > reference[seed] - self.sigma:
                break
        return tuple(trials)

    def _decision(self, measured: dict[int, float], reference: dict[int, float]) -> Decision:
        if not measured:
            return Decision(action="discard", explanation="it failed")
        differences = [score - reference[seed] for seed, score in measured.items()]
        delta, pairs = fmean(differences), len(differences)
        stderr = self.sigma / math.sqrt(pairs)
        return Decision(
            action="keep" if pairs == 4 and -delta > 1.3 * stderr else "discard",
            reference_hash=config().config_hash,
            reference_objective=fmean(reference[seed] for seed in measured),
            estimate_objective=fmean(measured.values()),
            delta=delta,
            stderr=stderr,
            sigma=self.sigma,
            pairs=pairs,
            pairs_ss=math.fsum((d - delta) ** 2 for d in differences),
            z=-delta / stderr,
            **Rules().model_dump(),
            explanation=f"{delta:+.4f} ± {stderr:.4f} bpb on {pairs} common seeds",
        )

    def _proposer(self) -> ProposerRecord:
        if self.rng.random() >= 0.3:
            return ProposerRecord(kind="sampler", latency_s=0.02)
        attempt = Attempt(
            raw='{"changes": {"lr": 0.002}, "reason": "settle faster"}' * 3,
            mode="json_schema",
            finish_reason="stop",
            verdict=Verdict(allowed=False, rail="novelty", why="already tried"),
            latency_s=1.2,
            prompt_tokens=3100,
            completion_tokens=61,
        )
        return ProposerRecord(
            kind="llm",
            model="meta/llama-3.1-8b-instruct",
            prompt_sha256=hashlib.sha256(b"prompt").hexdigest(),
            attempts=(attempt, attempt.model_copy(update={"verdict": Verdict(allowed=True)})),
            latency_s=2.5,
            overrode={"lr": 0.0031},
        )

    def _score(self, of: Config, seed: int) -> float:
        """Draw a score. Half of the noise's variance belongs to the seed and is shared by every
        config."""
        shared = random.Random(f"seed {seed}").gauss(0, 1)
        own = self.rng.gauss(0, 1)
        return self.truth[of.config_hash] + self.sigma * (shared + own) / math.sqrt(2)


def write_journal(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Write the rows as a journal, without a sync for each, and return them."""
    kept = list(rows)
    path.write_text("".join(dump_row(row) + "\n" for row in kept), "utf-8")
    return kept


def evidence_with(configs: Iterable[ConfigEvidence], **sums: Any) -> Evidence:
    """Return evidence with these configs, in this order, and these sums."""
    evidence = Evidence()
    vars(evidence).update(sums)
    evidence.configs = {entry.config_hash: entry for entry in configs}
    return evidence
