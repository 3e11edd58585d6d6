"""Reading the single-knob loop's JSONL: every stage, and every malformation."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.foreign import (
    BASELINE,
    CFG,
    HEADER,
    SUMMARY,
    blocked,
    eval_failed,
    evaluated,
    nim_error,
    paused,
    single_knob_lines,
    write_jsonl,
)
from trajectory.formats import single_knob
from trajectory.formats.source import ForeignFile, Source


def read(tmp_path: Path, *lines: Any) -> ForeignFile:
    return single_knob.read(Source.read(write_jsonl(tmp_path / "t.jsonl", list(lines))))


def test_every_stage_is_taken_in(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        HEADER,
        evaluated(1, "d_model", 768, 10.87),
        blocked(2),
        eval_failed(3),
        nim_error(4),
        paused(5),
        evaluated(5, "lr", 2e-4, 11.1),
        SUMMARY,
    )
    assert not found.skipped
    assert found.accept_delta_frac == 0.005
    assert [(run.iter, run.status, run.action) for run in found.runs] == [
        (0, "measured", "none"),
        (1, "measured", "keep"),
        (2, "refused", "none"),
        (3, "failed", "discard"),
        (4, "no proposal", "none"),
        (5, "paused", "none"),
        (5, "measured", "discard"),
    ]


def test_its_val_bpb_is_bits_per_token_and_goes_by_no_other_name(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER, evaluated(1, "d_model", 768, 10.87))
    assert found.measure == "val_bits_per_token"
    assert [run.score for run in found.runs] == [BASELINE, 10.87]
    for run in found.runs:
        assert "val_bpb" not in run.model_dump_json()


def test_what_the_source_says_is_kept_under_its_names(tmp_path: Path) -> None:
    kept, refused, failed = read(
        tmp_path, HEADER, evaluated(1, "d_model", 768, 10.87), blocked(2), eval_failed(3)
    ).runs[1:]
    assert kept.values == {**CFG, "d_model": 768}
    assert kept.changes == {"d_model": 768}
    assert kept.reason == "try d_model"
    assert kept.metrics["peak_gpu_mem_gib"] == 31.6
    assert kept.metrics["iter_wall_s"] == 88.1
    assert (refused.rail, refused.why) == ("R3_range", "lr 3 is out of range")
    assert (failed.score, failed.why) == (None, "CUDA out of memory")


MALFORMED = {
    "torn": ('{"iter": 1, "sta', "not JSON"),
    "no object": ([1, 2], "not a JSON object"),
    "another stage": ({"iter": 1, "stage": "dreaming"}, "dreaming"),
    "no stage": ({"iter": 1}, "stage is None"),
    "a score that is no number": (evaluated(1, "lr", 1e-3, 11) | {"val_bpb": float("nan")}, ""),
    "a number as text": (evaluated(1, "lr", 1e-3, 11) | {"val_bpb": "11"}, "score"),
    "a truth for a score": (evaluated(1, "lr", 1e-3, 11) | {"val_bpb": True}, "score"),
    "a score that no sum could hold": (evaluated(1, "lr", 1e-3, 11) | {"val_bpb": 1e300}, "score"),
    "a whole number beyond any float": (
        evaluated(1, "lr", 1e-3, 11) | {"candidate_cfg": {"lr": 10**400}},
        "beyond any float",
    ),
    "no config": (evaluated(1, "lr", 1e-3, 11) | {"candidate_cfg": None}, "names no config"),
    "a nested config": (
        evaluated(1, "lr", 1e-3, 11) | {"candidate_cfg": {"lr": [1]}},
        "not a plain value",
    ),
    "metrics that are none": (evaluated(1, "lr", 1e-3, 11) | {"eval_metrics": []}, "eval_metrics"),
    "a metric that is no number": (
        evaluated(1, "lr", 1e-3, 11) | {"eval_metrics": {"loss": float("inf")}},
        "metrics.loss: is inf, which is not a JSON number",
    ),
    "another decision": (evaluated(1, "lr", 1e-3, 11) | {"decision": "maybe"}, "maybe"),
    "no proposal": (evaluated(1, "lr", 1e-3, 11) | {"proposal": None}, "proposal"),
    "an iteration that is text": (evaluated(1, "lr", 1e-3, 11) | {"iter": "one"}, "iter"),
    "an iteration twice": (evaluated(9, "lr", 1e-3, 11), "in line 2 already"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_named_and_the_rest_taken_in(tmp_path: Path, name: str) -> None:
    line, why = MALFORMED[name]
    good = evaluated(9, "d_ff", 6144, 10.99), evaluated(10, "d_ff", 2048, 11.0)
    found = read(tmp_path, HEADER, good[0], line, good[1])
    assert [run.iter for run in found.runs] == [0, 9, 10]
    assert [skipped.line for skipped in found.skipped] == [3]
    assert why in found.skipped[0].why


def test_without_its_header_no_baseline_is_made_up(tmp_path: Path) -> None:
    found = read(tmp_path, '{"baseline_val_bpb": 10.9', *single_knob_lines(3)[1:])
    assert [skipped.line for skipped in found.skipped] == [1]
    assert not any(run.is_baseline for run in found.runs)
    assert len(found.runs) == 3


def test_a_line_left_out_leaves_nothing_behind(tmp_path: Path) -> None:
    found = read(tmp_path, HEADER, HEADER | {"accept_delta_frac": 0.5})
    assert (len(found.runs), [skipped.line for skipped in found.skipped]) == (1, [2])
    assert found.accept_delta_frac == 0.005


def test_a_refused_proposal_may_be_anything(tmp_path: Path) -> None:
    wild = blocked(1) | {"proposal": {"knob": "lr", "new_value": {"deep": [1]}}}
    found = read(tmp_path, HEADER, wild, blocked(2) | {"proposal": "rm -rf"})
    assert not found.skipped
    assert [run.changes for run in found.runs[1:]] == [None, None]
