"""A row records what happened and round-trips."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoresearch import safe_text
from tests.support.configs import config
from tests.support.confirmed import confirmation
from tests.support.rows import Simulator, baseline_row, campaign_row, iteration_row, ok, trial
from trainer.schema import Averaging, Budget, Checkpoint, TrialFailed, parse_result
from trajectory.calibrated import Calibrated, CalibrationRun, Correlation, ProxyMetric
from trajectory.journal import read_rows
from trajectory.proposals import Attempt, Proposal, Verdict
from trajectory.rows import (
    SCHEMA,
    BaselineRow,
    CalibratedRow,
    CalibrationRow,
    CampaignRow,
    ConfirmRow,
    Decision,
    EventRow,
    IterationRow,
    Rules,
    StressRow,
    dump_row,
    parse_row,
)

FIXTURES = Path(__file__).parent / "fixtures"
EMA = Averaging(form="ema", steps=20)
RHO = Correlation(value=0.7, lo=0.5, hi=0.8)

CALIBRATION = (
    CalibrationRow(
        at="2026-01-05T22:00:00+00:00",
        run=CalibrationRun(
            steps=60, horizon_steps=None, checkpoints=(Checkpoint(average=EMA),), texts=True
        ),
        config=config(),
        config_hash=config().config_hash,
        trial=trial(1, config(), 700, ok(4.0, checkpoints_bpb=(4.1,)), "calibration"),
    ),
    CalibratedRow(
        at="2026-01-05T22:00:00+00:00",
        found=Calibrated(
            budget=Budget(),
            long_steps=1000,
            long_seeds=1,
            n=8,
            best_n=5,
            proxy_metrics=(
                ProxyMetric(name="own", cost=1.0, spearman=RHO, kendall=RHO, forgone_bpb=0.1),
            ),
            steps_curve=((1.0, RHO),),
        ),
    ),
)
_RUNS, _END = confirmation(1, config(), {3: config(lr=2e-3)})
CONFIRMATION = (*_RUNS, _END)

anything = st.text(st.characters(codec=None, exclude_categories=()))  # includes lone surrogates
values = st.one_of(st.booleans(), st.integers(), st.floats(), anything)


def test_every_kind_of_row_reads_back_equal() -> None:
    rows = list(Simulator(3).rows(120, stress_every=30))
    assert {row.kind for row in rows} == {
        "campaign", "baseline", "iteration", "stress", "finalists", "event"
    }  # fmt: skip
    for row in [*rows, *CALIBRATION, *CONFIRMATION]:
        assert parse_row(dump_row(row)) == row
        assert next(iter(json.loads(dump_row(row)))) == "kind"
    assert json.loads(dump_row(campaign_row()))["schema"] == SCHEMA


@given(st.dictionaries(anything, values, max_size=4), anything)
def test_proposals_round_trip(changes: dict[str, bool | int | float | str], reason: str) -> None:
    row = iteration_row(1, None, verdict=Verdict(allowed=False, rail="range", why=reason))
    row = row.model_copy(update={"proposal": Proposal(changes=changes, reason=reason)})
    line = dump_row(row)
    assert "\n" not in line
    assert parse_row(line.encode()) == row


def test_a_row_of_an_edited_journal_is_made_safe_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = next(
        line
        for line in (FIXTURES / "journal_v4.jsonl").read_text().splitlines()
        if '"kind":"iteration"' in line and json.loads(line)["proposal"]
    )
    row = json.loads(line)
    row["proposal"] |= {"changes": {"lr": math.nan}, "reason": "it said sk-of-nobody-1"}
    row["decision"]["explanation"] = 'with "quotes" and sk-of-nobody-1'
    monkeypatch.setattr(safe_text, "_forms", None)
    monkeypatch.setenv("LLM_API_KEY", "sk-of-nobody-1")
    read = parse_row(json.dumps(row))
    assert isinstance(read, IterationRow) and read.proposal is not None
    assert read.proposal.changes == {"lr": "nan"}
    assert read.proposal.reason == "it said [secret]"
    assert read.decision.explanation == 'with "quotes" and [secret]'
    assert parse_row(dump_row(read)) == read


def test_a_failed_trials_message_of_no_valid_text_can_be_written_and_read() -> None:
    failed = TrialFailed(status="crash", message="no attribute \udc80\x1b")
    assert failed.message == "no attribute   "
    assert parse_result(failed.model_dump_json()) == failed


def test_what_json_lacks_becomes_text() -> None:
    proposal = Proposal(changes={"lr": math.nan, "d_ff": -math.inf, "beta2": 0.95}, reason="")
    assert proposal.changes == {"lr": "nan", "d_ff": "-inf", "beta2": 0.95}
    attempt = Attempt(raw="fine \ud83d but not whole, \U0001f600 is")
    assert attempt.raw == "fine � but not whole, \U0001f600 is"


def test_types_of_values_survive() -> None:
    changes = {"flag": True, "count": 1, "lr": 1.0, "norm": "1"}
    read = Proposal.model_validate_json(Proposal(changes=changes, reason="").model_dump_json())
    assert [type(value) for value in read.changes.values()] == [bool, int, float, str]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (EventRow, {"colour": "blue"}),
        (Decision, {"delta": math.nan}),
        (Decision, {"z_keep": math.nan}),
        (Decision, {"max_runs": "four"}),
        (Decision, {"rules": None}),
    ],
)
def test_bad_fields_are_refused(kind: type[EventRow | Decision], more: dict[str, object]) -> None:
    known = {
        EventRow: {"at": "2026-01-05T22:00:00+00:00", "event": "paused", "why": "lunch"},
        Decision: {"action": "keep"},
    }[kind]
    kind.model_validate(known)
    for read in (kind.model_validate, lambda said: kind.model_validate_json(json.dumps(said))):
        with pytest.raises(ValidationError, match=next(iter(more))):
            read(known | more)


def test_every_rule_is_in_the_row_under_its_own_name() -> None:
    other = Rules(**{name: rule.default + 1 for name, rule in Rules.model_fields.items()})
    for rules in (Rules(), other):
        decision = Decision(action="keep", **rules.model_dump())
        written = json.loads(decision.model_dump_json())
        assert {rule: written.pop(rule) for rule in rules.model_dump()} == rules.model_dump()
        assert Decision.model_validate_json(decision.model_dump_json()) == decision


def test_rules_that_would_be_refused_today_are_read_as_the_row_says_them() -> None:
    said = '{"action": "keep", "z_keep": 1.3, "z_drop": -1.0, "first_drop": 0.35, "max_runs": 1}'
    decision = Decision.model_validate_json(said)
    assert (decision.z_drop, decision.early_stopping_threshold) == (-1.0, 0.35)
    assert json.loads(decision.model_dump_json())["max_runs"] == 1


def test_a_failed_trial_has_no_score() -> None:
    rows = [row for row in Simulator(1).rows(200) if isinstance(row, IterationRow)]
    failures = [t for row in rows for t in row.trials if t.result.status != "ok"]
    assert failures
    assert all(trial.objective is None for trial in failures)
    assert "val_bpb" not in dump_row(iteration_row(1, config(), (failures[0],)))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("journal_v*.jsonl")), ids=lambda p: p.stem)
def test_journals_of_every_schema_so_far_are_read(path: Path) -> None:
    rows = list(read_rows(path))
    assert [row.kind for row in rows[:3]] == ["campaign", "baseline", "baseline"]
    assert sum(isinstance(row, IterationRow) for row in rows) == 25
    assert any(isinstance(row, EventRow) for row in rows)
    assert any(isinstance(row, StressRow) for row in rows) == (path.stem != "journal_v1")
    assert any(isinstance(row, ConfirmRow) for row in rows) == (path.stem == "journal_v4")


def test_an_older_first_row_has_the_rules_that_its_campaign_went_by() -> None:
    said = json.loads(dump_row(campaign_row())) | {"z_keep": 1.3, "max_runs": 4}
    del said["z_drop"], said["early_stopping_threshold"]
    for older, drop in ((said | {"first_drop": 0.2}, 0.2), (said, 0.35)):
        row = parse_row(json.dumps(older))
        assert isinstance(row, CampaignRow)
        assert (row.z_drop, row.early_stopping_threshold) == pytest.approx((1.0, drop))
    with pytest.raises(ValidationError, match="max_runs"):
        parse_row(json.dumps(said | {"max_runs": "many"}))


def test_a_row_says_only_what_its_campaign_uses() -> None:
    begun = campaign_row()
    for row in CONFIRMATION[:-1]:
        assert len(json.loads(dump_row(row))["trial"]["result"]["texts"]) == 1
    assert not {"texts", "checkpoints_bpb"} & set(dump_row(baseline_row(1, 4.0, 0)).split('"'))
    chosen = {"reserve_holdout": True, "cudnn_attention": True, "average": EMA, "cooldown_steps": 5}
    assert not chosen.keys() & json.loads(dump_row(begun)).keys()
    other = begun.model_copy(update=chosen)
    assert chosen.keys() <= json.loads(dump_row(other)).keys()
    assert parse_row(dump_row(other)) == other


def test_only_a_row_that_restates_says_so() -> None:
    restated = {
        path.stem: [
            row.proposal.restated
            for row in read_rows(path)
            if isinstance(row, IterationRow) and row.proposal is not None and row.proposal.restated
        ]
        for path in sorted(FIXTURES.glob("journal_v*.jsonl"))
    }
    assert restated["journal_v1"] == restated["journal_v2"] == []
    assert restated["journal_v3"] == [{"beta1": 0.9, "norm": "layernorm"}] * 2
    assert "restated" not in Proposal(changes={"lr": 1e-3}, reason="x").model_dump_json()


def test_this_schema_has_a_journal_kept_as_a_fixture() -> None:
    lines = (FIXTURES / f"journal_v{SCHEMA}.jsonl").read_text("utf-8").splitlines()
    written = [json.loads(dump_row(parse_row(line))) for line in lines]
    kept = [json.loads(line) for line in lines]
    assert kept[0].pop("compile") is False, "a setting of earlier versions"
    assert written == kept


def test_a_campaign_with_compiled_blocks_in_fp8_can_still_be_read() -> None:
    lines = (FIXTURES / f"journal_v{SCHEMA}.jsonl").read_text("utf-8").splitlines()
    first = parse_row(lines[0].replace('"compile":false', '"compile":true'))
    assert first == parse_row(lines[0])
    trained = next(line for line in lines if '"precision":"bf16"' in line)
    assert isinstance(parse_row(trained.replace('"bf16"', '"fp8"')), BaselineRow | IterationRow)


FORMER_NAMES = {
    "reference_objective": "reference_bpb",
    "estimate_objective": "estimate_bpb",
    "early_stopping_threshold": "first_drop",
    "reserve_holdout": "hold_back",
    "objective": "val_bpb",
    "checkpoints": "looks",
    "checkpoints_bpb": "looks_bpb",
    "proxy_metrics": "ways",
    "earlier_analyses": "looks",
}


def test_rows_are_read_under_their_former_names() -> None:
    lines = (FIXTURES / f"journal_v{SCHEMA}.jsonl").read_text("utf-8").splitlines()
    first = parse_row(lines[0]).model_copy(update={"reserve_holdout": True})
    rows = [first, *map(parse_row, lines[1:]), *CALIBRATION]
    unseen = dict(FORMER_NAMES)
    for row in rows:
        former = dump_row(row)
        for name, old in FORMER_NAMES.items():
            if f'"{name}":' in former:
                former = former.replace(f'"{name}":', f'"{old}":')
                unseen.pop(name, None)
        assert parse_row(former) == row
    assert not unseen
