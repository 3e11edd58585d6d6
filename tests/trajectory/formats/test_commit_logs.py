"""Reading the results.tsv of karpathy/autoresearch, and pi-autoresearch's autoresearch.jsonl."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from autoresearch.errors import FormatError
from tests.support.foreign import RESULTS_TSV
from trajectory.formats.importing import import_campaign, read_imported
from trajectory.formats.loop_logs import read_tsv
from trajectory.formats.source import ForeignFile, Source, SourcePart
from trajectory.formats.standings import Standings


def read(tmp_path: Path, text: str | bytes) -> ForeignFile:
    path = tmp_path / "results.tsv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_tsv(Source.read(path), SourcePart())


EXAMPLE = [
    ("a1b2c3d", 0.9979, "keep", True),
    ("b2c3d4e", 0.9932, "keep", False),
    ("c3d4e5f", 1.005, "discard", False),
    ("d4e5f6g", None, "discard", False),
]
STATUSES = """commit\tval_bpb\tstatus\tdescription
aaa\t1.00\tcrash\tbaseline
bbb\t1.00\tbaseline\tdepth 8
ccc\t0.98\tbest\tdepth 10
ddd\t0.97\tkept\tdepth 12
eee\t0.96\tpromising\tlr x2
eee\t1.20\tdiscard\tlr x4
fff\t0.0\tfailed\tlr x8
"""
LOGS = {
    "the example of its program": (RESULTS_TSV, EXAMPLE),
    "case, white space and Windows": (
        "\ufeff" + RESULTS_TSV.replace("keep", " KEEP ").replace("\n", "\r\n"),
        EXAMPLE,
    ),
    "a description that begins with baseline": (
        RESULTS_TSV.replace("baseline", "Baseline: d8 (AdamW)"),
        EXAMPLE,
    ),
    "no baseline": (
        RESULTS_TSV.replace("baseline", "first run"),
        [(*run[:3], False) for run in EXAMPLE],
    ),
    "columns in another order": (
        "status\tcommit\tdescription\tmemory_gb\tval_bpb\tnote\nkeep\tabc\tx\t1.5\t0.9\thm\n",
        [("abc", 0.9, "keep", False)],
    ),
    "another score": (
        "commit\tval_loss\tdescription\naaa\t3.2\tbaseline\n",
        [("aaa", 3.2, "none", True)],
    ),
    "a score counts whatever its status": (
        STATUSES,
        [
            ("aaa", None, "discard", False),
            ("bbb", 1.0, "keep", True),
            ("ccc", 0.98, "keep", False),
            ("ddd", 0.97, "keep", False),
            ("eee", 0.96, "none", False),
            ("eee", 1.2, "discard", False),
            ("fff", None, "discard", False),
        ],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_every_line_is_read(tmp_path: Path, name: str) -> None:
    text, expected = LOGS[name]
    found = read(tmp_path, text)
    assert not found.skipped
    assert found.measure == ("val_loss" if name == "another score" else "val_bpb")
    assert [(one.name, one.score, one.action, one.is_baseline) for one in found.runs] == expected
    assert all(run.values is None for run in found.runs)


MALFORMED = {
    "few cells": ("abc\t0.9", "2 cells"),
    "a score that is text": ("abc\tlow\t1.0\tkeep\tx", "'low', not a number"),
    "kept at nothing": ("abc\t0.000000\t0.0\tkeep\tx", "greater than 0"),
    "infinite": ("abc\t1e400\t1.0\tkeep\tx", "'1e400', not a number"),
    "a number to Python alone": ("abc\t1_0.5\t1.0\tkeep\tx", "'1_0.5', not a number"),
    "neither commit nor description": ("\t0.9\t1.0\tkeep\t", "names no config"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_named_and_the_rest_taken_in(tmp_path: Path, name: str) -> None:
    line, why = MALFORMED[name]
    found = read(tmp_path, RESULTS_TSV + line + "\nfff\t0.99\t1.0\tdiscard\ty\n")
    assert len(found.runs) == 5
    assert [skipped.line for skipped in found.skipped] == [6]
    assert why in found.skipped[0].why


def test_a_header_that_names_a_column_twice_is_none(tmp_path: Path) -> None:
    twice = "commit\tval_bpb\tval_bpb\tmemory_gb\tstatus\tdescription\n"
    found = read(tmp_path, twice + "abc\t0.9\t0.8\t1.0\tkeep\tx\n")
    assert not found.runs
    assert [skipped.line for skipped in found.skipped] == [1, 2]


def test_configs_under_one_commit_are_no_replicates(tmp_path: Path) -> None:
    standings = Standings.of(read(tmp_path, STATUSES).runs)
    assert standings.noise is None
    assert [one.entry.mean for one in standings.top(9)] == [0.96, 0.97, 0.98, 1.0, 1.2]


OTHER = "commit\tscore\taccuracy\tstatus\tdescription\n"


def test_a_column_that_is_asked_for_is_the_score(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(f"{OTHER}aaa\t30.5\t0.1\tkeep\tbaseline\nbbb\t20\t0.2\tkeep\tx\n")
    for metric in (None, "absent", "accuracy"):
        with pytest.raises(FormatError, match="--metric"):
            import_campaign(path, tmp_path / "new", SourcePart(metric))
    imported = import_campaign(path, tmp_path / "new", SourcePart("score"))
    assert imported.provenance.measure == "score"
    assert [run.score for run in imported.runs] == [30.5, 20]


@pytest.mark.parametrize(("scores", "refused"), [((1, 2, 3), True), ((1, 2, 2, 1), False)])
def test_keeping_higher_is_refused(tmp_path: Path, scores: tuple[int, ...], refused: bool) -> None:
    lines = (f"{score}\tkeep\trun {n}\n" for n, score in enumerate(scores))
    text = "val_loss\tstatus\tdescription\n" + "".join(lines)
    with pytest.raises(FormatError) if refused else nullcontext():
        assert len(read(tmp_path, text).runs) == len(scores)


CONFIG = {"type": "config", "name": "x", "metricName": "best_val_bpb", "bestDirection": "lower"}


def pi_run(number: int, metric: float, status: str, description: str) -> dict[str, object]:
    return {
        "run": number,
        "commit": "aaaaaa1",
        "metric": metric,
        "metrics": {"steps": 10 * number},
        "status": status,
        "description": description,
        "timestamp": 1774024187637,
        "segment": 0,
    }


def write(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "autoresearch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_its_runs_are_ranked_under_its_own_metric(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        CONFIG,
        pi_run(1, 0, "crash", "failed"),
        {"type": "hook", "stage": "before", "exit_code": 0},
        pi_run(2, 1.56, "keep", "baseline"),
        pi_run(3, 1.54, "discard", "too large"),
        pi_run(4, 1.50, "checks_failed", "wider"),
        CONFIG | {"metricName": "seconds"},
        pi_run(5, 0.5, "keep", "faster"),
    )
    imported = import_campaign(path, tmp_path / "campaign")
    provenance = imported.provenance
    assert (provenance.format, provenance.measure) == ("pi-jsonl", "best_val_bpb")
    assert [skipped.line for skipped in provenance.skipped] == [8]
    standings = Standings.of(imported.runs)
    assert [one.entry.mean for one in standings.top(9)] == [1.50, 1.54, 1.56]
    assert standings.baseline is not None
    assert standings.baseline.mean == 1.56


def test_another_metric_or_direction_than_the_file_has_is_refused(tmp_path: Path) -> None:
    higher = CONFIG | {"bestDirection": "higher"}
    path = write(tmp_path, higher, pi_run(1, 0.9, "keep", "baseline"))
    with pytest.raises(FormatError):
        import_campaign(path, tmp_path / "campaign")
    path = write(tmp_path, CONFIG, pi_run(1, 1.5, "keep", "baseline"))
    with pytest.raises(FormatError, match="best_val_bpb"):
        import_campaign(path, tmp_path / "campaign", SourcePart("val_loss"))
    assert not (tmp_path / "campaign").exists()
    imported = import_campaign(path, tmp_path / "campaign", SourcePart("best_val_bpb"))
    assert imported.provenance.skipped == ()


@pytest.mark.parametrize(
    ("status", "is_measured"),
    [
        *((one, False) for one in ("timeout", "failed", "crash (OOM)", "error", "OOM", "invalid")),
        *((one, False) for one in ("timed out", "Diverged", "killed: out of memory", "crashed")),
        *((one, True) for one in ("keep", "discard", "checks_failed", "", "slow")),
    ],
)
def test_the_score_of_a_failed_run_is_no_measurement(
    status: str, is_measured: bool, tmp_path: Path
) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
        "aaaaaa1\t1.0000\t44.0\tkeep\tbaseline\n"
        f"bbbbbb2\t0.93\t44\t{status}\tdepth 20\n"
    )
    import_campaign(path, tmp_path / "taken")
    scores = [run.score for run in read_imported(tmp_path / "taken").runs]
    assert scores == [1.0, 0.93 if is_measured else None]
