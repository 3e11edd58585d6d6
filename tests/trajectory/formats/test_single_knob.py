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
from trajectory.formats.loop_logs import read_single_knob
from trajectory.formats.source import ForeignFile, Source, SourcePart


def read(tmp_path: Path, *lines: Any) -> ForeignFile:
    source = Source.read(write_jsonl(tmp_path / "t.jsonl", list(lines)))
    return read_single_knob(source, SourcePart())


def test_every_run_is_taken_in_under_its_own_measure(tmp_path: Path) -> None:
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
    assert found.measure == "val_bits_per_token"
    assert [(run.iter, run.score, run.action) for run in found.runs] == [
        (0, BASELINE, "none"),
        (1, 10.87, "keep"),
        (3, None, "discard"),
        (5, 11.1, "discard"),
    ]
    kept = found.runs[1]
    assert kept.values == {**CFG, "d_model": 768}
    assert kept.changes == {"d_model": 768}
    assert kept.reason == "try d_model"


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
