import csv
import io
import json
import shutil
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

from autoresearch.errors import HistoryError
from tests.support.campaigns import installed
from tests.support.configs import config
from tests.support.places import NIGHT
from tests.support.rows import Simulator, iteration_row, trial, write_journal
from trainer.schema import CommandOk
from trajectory.history import asking
from trajectory.history.view_definitions import VIEWS
from trajectory.history.views import open_views
from trajectory.journal import read_rows
from trajectory.reading import Results
from trajectory.rows import ConfirmedRow, IterationRow, Row, trials_of

ENDLESS = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT "


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    shutil.copy(NIGHT / "trajectory.jsonl", tmp_path)
    return tmp_path


def test_the_views_say_what_the_journal_says(campaign: Path) -> None:
    rows = list(read_rows(campaign / "trajectory.jsonl"))
    iterations = [row for row in rows if isinstance(row, IterationRow)]
    with open_views(campaign / "trajectory.jsonl") as views:
        shown = views.query(
            "SELECT iter, estimate, delta, stderr, reason, wall_s FROM iterations"
        ).rows
        kinds = dict(views.query("SELECT kind, count(*) FROM trials GROUP BY kind").rows)
        steps = dict(views.query("SELECT trial_id, steps FROM trials").rows)
        knobs = views.query("SELECT lr, d_model, norm FROM configs WHERE iter = 0").rows
        gains = views.query("SELECT iter, delta, all_hi FROM confirmations").rows
        columns = views.columns()
    assert shown == [
        (
            row.iter,
            row.decision.estimate_objective,
            row.decision.delta,
            row.decision.stderr,
            row.proposal.reason if row.proposal else None,
            row.wall_s,
        )
        for row in sorted(iterations, key=lambda row: row.iter)
    ]
    trials = [(row.kind, trial) for row in rows for trial in trials_of(row)]
    assert kinds == Counter(kind for kind, _ in trials)
    assert steps == {t.trial_id: getattr(t.result, "steps", None) for _, t in trials}
    baseline = next(row for row in rows if row.kind == "baseline").config
    assert knobs == [tuple(baseline.value(name) for name in ("lr", "d_model", "norm"))]
    found = next(row for row in rows if isinstance(row, ConfirmedRow)).found
    assert gains == [(c.iter, g.delta, g.all_hi) for c in found.configs for g in c.gains]
    assert columns.keys() == VIEWS.keys()
    for name, (_, described) in VIEWS.items():
        assert columns[name][: len(described)] == [column for column, _, _ in described]
    assert not (campaign / "history.sqlite").exists()


def test_configs_are_those_of_the_evidence(campaign: Path) -> None:
    """Configs that failed, were trained on several seeds, or score with the other sign, too."""
    rows: list[Row] = [*Simulator(7).rows(60)]
    candidate = config(lr=0.0123)
    score = CommandOk(score=3.5, direction="maximise", train_s=2, setup_s=0.1)
    rows.append(iteration_row(1000, candidate, (trial(9001, candidate, 2**70, score),)))
    write_journal(campaign / "simulated.jsonl", iter(rows))
    for journal in (campaign / "trajectory.jsonl", campaign / "simulated.jsonl"):
        evidence = Results(journal).evidence
        with open_views(journal) as views:
            found = views.query(
                "SELECT config_hash, iter, action, n, failures, params, objective, train_s "
                "FROM configs"
            ).rows
            seeds = dict(views.query("SELECT trial_id, seed FROM trials").rows)
        known = list(evidence.configs.values())
        assert [row[:6] for row in found] == [
            (one.config_hash, one.iter, one.action, one.n, len(one.failures), one.params)
            for one in known
        ]
        assert [row[6] for row in found] == pytest.approx(
            [one.mean if one.n else None for one in known]
        )
        assert [row[7] for row in found] == pytest.approx([one.train_s for one in known])
    assert max(seeds.values(), key=len) == str(2**70)


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE rows_v8",
        "DELETE FROM rows_v8",
        "ATTACH 'stolen.sqlite' AS s",
        "VACUUM INTO 'stolen.sqlite'",
        "PRAGMA query_only = OFF",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "CREATE TEMP TABLE t (a)",
        "SELECT 1; DROP TABLE rows_v8",
        "SELECT zeroblob(100000000)",
        "SELECT hex(zeroblob(500000)) LIKE '%' || hex(zeroblob(20000)) || '1%'",
        f"{ENDLESS} count(*) FROM t",
        f"{ENDLESS} zeroblob(10000000) FROM t",
        "SELECT '\ud800'",
        "SELECT nothing",
        "",
    ],
)
def test_a_query_can_do_no_harm(campaign: Path, query: str) -> None:
    with open_views(campaign / "trajectory.jsonl") as views:
        with pytest.raises(HistoryError) as refused:
            views.query(query, limit_s=0.2)
        assert "\n" not in str(refused.value)
        assert views.query("SELECT count(*) FROM iterations").rows == [(100,)]
    assert [path.name for path in campaign.iterdir()] == ["trajectory.jsonl"]


LONG = "hex(zeroblob(8000000))"
STUBBORN = {
    "one call": f"SELECT instr({LONG}, hex(zeroblob(4000000)) || '1')",
    "temporary tables": f"{ENDLESS} x, {LONG} AS y FROM t ORDER BY y, x",
    "distinct texts": f"{ENDLESS} DISTINCT hex(randomblob(2000000)) FROM t",
    "many cells": f"{ENDLESS} {', '.join(['x'] * 1500)} FROM t",
}


@pytest.mark.parametrize("what", STUBBORN)
def test_a_query_that_nothing_interrupts_ends_with_its_process(campaign: Path, what: str) -> None:
    temporary = campaign / "temporary"
    temporary.mkdir()
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(HistoryError) as refused:
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("SQLITE_TMPDIR", str(temporary))
        asking.query(campaign / "trajectory.jsonl", STUBBORN[what], limit_s=1.5)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - began_s < 30
    assert list(temporary.iterdir()) == []


def test_an_answer_of_every_type_comes_back_whole(campaign: Path) -> None:
    found = asking.query(campaign / "trajectory.jsonl", "SELECT 1, 'ä', x'00ff', NULL, 1e999, 0.1")
    assert found.rows == [(1, "ä", b"\x00\xff", None, float("inf"), 0.1)]
    assert asking.columns(campaign / "trajectory.jsonl").keys() == VIEWS.keys()


def test_rows_beyond_the_limit_are_cut(campaign: Path) -> None:
    with open_views(campaign / "trajectory.jsonl") as views:
        answer = views.query("SELECT iter FROM iterations ORDER BY iter", most=3)
        assert (answer.rows, answer.cut) == ([(1,), (2,), (3,)], True)
        assert not views.query("SELECT iter FROM iterations", most=100).cut


def test_reindex_stores_the_views_for_other_programs(campaign: Path) -> None:
    done = installed("reindex", f"--campaign={campaign}")
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(campaign / "history.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM iterations").fetchone() == (100,)
        assert connection.execute("SELECT lr FROM configs WHERE iter = 0").fetchone()
    connection.close()


def test_the_command_prints_a_table_csv_and_json(campaign: Path) -> None:
    query = "SELECT iter, delta, reason FROM iterations WHERE action = 'keep'"
    printed = json.loads(installed("sql", query, f"--campaign={campaign}", "--json").stdout)
    table = installed("sql", query, f"--campaign={campaign}", "--csv").stdout
    read = list(csv.DictReader(io.StringIO(table, newline="")))
    typed = [{**row, "iter": int(row["iter"]), "delta": float(row["delta"])} for row in read]
    assert typed == printed
    assert len(printed) > 1
    wide = installed("sql", "SELECT * FROM iterations LIMIT 3", f"--campaign={campaign}")
    assert len(wide.stdout.splitlines()) == 4  # no value is folded
    shown = installed("sql", "SELECT 7 AS \"[/x]\", x'00' AS b", f"--campaign={campaign}")
    assert shown.stdout.split() == ["[/x]", "b", "7", "00"]
    refused = installed("sql", "DROP TABLE t", f"--campaign={campaign}")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    views = json.loads(installed("sql", f"--campaign={campaign}", "--json").stdout)
    assert views.keys() == VIEWS.keys()
