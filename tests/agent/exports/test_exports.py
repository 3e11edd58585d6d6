import json
import sqlite3
from dataclasses import asdict
from pathlib import Path

import optuna
import pytest

from agent.exports.forms import export_chat, export_csv, export_mlflow
from agent.exports.optuna_study import export_optuna
from agent.menu.files import load_menu
from agent.proposers.llm.completions import Conversations, Message, messages_sha256
from autoresearch.errors import FormatError, JournalError
from autoresearch.layout import JOURNAL_FILE
from tests.support.configs import config
from tests.support.memories import MENU, memory_of, raw
from tests.support.rows import (
    at,
    baseline_row,
    campaign_row,
    failed,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from trainer.schema import CurvePoint, TrialFailed
from trajectory.evidence import Evidence
from trajectory.formats.mlflow_runs import run_status
from trajectory.history.tables import sqlite_path, sqlite_url
from trajectory.journal import read_rows
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.rows import Decision, Row, TrialRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]
CURVE = [
    CurvePoint(step=s, tokens=64 * s, loss=5 / s, lr=1e-3, grad_norm=1.0, elapsed_s=0.1 * s)
    for s in (1, 2, 3)
]


def own(directory: Path, rows: list[Row]) -> Path:
    directory.mkdir(parents=True)
    write_journal(directory / JOURNAL_FILE, iter(rows))
    return directory


def rows_of(iterations: int) -> list[Row]:
    """Return the rows of a campaign over a shipped menu."""
    menu = load_menu("cpu-tiny")
    first = campaign_row().model_copy(update={"menu_toml": menu.toml, "menu_sha256": menu.sha256})
    rows: list[Row] = [first]
    rows += [baseline_row(seed, 3.9 + 0.02 * seed, seed, menu.baseline) for seed in range(3)]
    memory = memory_of(iterations)
    for number, entry in enumerate(list(memory.evidence.configs.values())[1:], start=1):
        result = ok(entry.mean) if entry.scores else entry.failures[0]
        trials: tuple[TrialRecord, ...] = (trial(10 + number, entry.config, 0, result),)
        rows.append(iteration_row(number, entry.config, trials, changes=entry.changes))
    return rows


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own(tmp_path_factory.mktemp("exports") / "night", rows_of(30))


@pytest.mark.slow
def test_a_study_has_a_trial_per_config_with_its_values(subject: Path, tmp_path: Path) -> None:
    exported = export_optuna(subject, str(tmp_path / "o.sqlite"))
    evidence = Evidence(read_rows(subject / JOURNAL_FILE))
    assert exported.count == len(evidence.configs)
    storage = f"sqlite:///{tmp_path / 'o.sqlite'}"
    study = optuna.load_study(study_name=f"night {campaign_row().id}", storage=storage)
    assert study.user_attrs["menu"] == "cpu-tiny"
    for trial_, entry in zip(study.trials, evidence.configs.values(), strict=True):
        assert trial_.params == MENU.knob_values(entry.config)
        assert trial_.user_attrs["n"] == entry.n
        if entry.scores:
            assert trial_.value == pytest.approx(entry.mean)
        else:
            assert trial_.state is optuna.trial.TrialState.FAIL
    assert study.best_value == pytest.approx(
        min(entry.mean for entry in evidence.configs.values() if entry.scores)
    )
    assert study.trials[0].datetime_start is not None
    with pytest.raises(FormatError):  # a study that is there is left alone
        export_optuna(subject, str(tmp_path / "o.sqlite"))
    assert len(optuna.study.get_all_study_names(storage)) == 1


def test_a_storage_that_cannot_be_used_is_said(subject: Path, tmp_path: Path) -> None:
    (tmp_path / "o.sqlite").write_text("no database at all, just words " * 100)
    for where in (str(tmp_path / "o.sqlite"), "nonsense://x", "postgresql+nodriver://x/y"):
        with pytest.raises(FormatError) as raised:
            export_optuna(subject, where)
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_mlflow_has_a_run_per_trial_with_its_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    night = own(tmp_path / "night", rows_of(4))
    folder = night / "trials" / "t000000"
    folder.mkdir(parents=True)
    lines = "".join(point.model_dump_json() + "\n" for point in CURVE)
    (folder / "curve.jsonl").write_text(lines)
    where = str(tmp_path / "m.sqlite")
    exported = export_mlflow(night, where)
    assert exported.count == 7
    assert exported.notes[0].startswith("6 trials")
    client = MlflowClient(f"sqlite:///{where}")
    experiment = client.get_experiment_by_name(f"night {campaign_row().id}")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 7
    run = runs["t000000"]
    assert run.data.params["lr"] == str(MENU.baseline.lr)
    assert run.data.metrics["val_bpb"] == 3.9
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(p.step, p.loss) for p in CURVE]
    assert run.info.end_time - run.info.start_time == 3650
    with pytest.raises(FormatError):
        export_mlflow(night, where)
    with sqlite3.connect(where) as database:
        assert database.execute("select count(*) from runs").fetchone() == (7,)


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_an_absent_tracking_server_hides_the_password(scheme: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    night = own(tmp_path / "night", rows_of(1))
    with pytest.raises(FormatError) as raised:
        export_mlflow(night, f"{scheme}://me:secret@127.0.0.1:9/x")
    assert "secret" not in str(raised.value)


PROMPT = (Message("system", "You improve recipes."), Message("user", "Iteration 1."))
REFUSED, GOOD = raw({"lr": 3}), raw({"lr": 0.002})
SENT = (*PROMPT, Message("assistant", REFUSED), Message("user", "too high; answer again"))
ATTEMPTS = (
    Attempt(raw=REFUSED, verdict=Verdict(allowed=False, rail="range", why="too high")),
    Attempt(raw=GOOD, verdict=Verdict(allowed=True)),
)


def llm_row(iteration: int, **record: object) -> Row:
    values = {"kind": "llm", "model": "tiny", "attempts": ATTEMPTS} | record
    values.setdefault("prompt_sha256", messages_sha256(PROMPT))
    return iteration_row(
        iteration,
        MENU.baseline,
        (trial(iteration, MENU.baseline, 0, ok(3.5)),),
        proposer=ProposerRecord.model_validate(values),
        decision=Decision(action="keep", delta=-0.1, stderr=0.02, estimate_objective=3.5),
    )


def test_exchanges_are_chat_messages_with_what_became_of_them(tmp_path: Path) -> None:
    night = own(tmp_path / "night", [rows_of(0)[0], llm_row(1)])
    Conversations(night).keep(PROMPT, SENT)
    exported = export_chat(night, str(tmp_path / "chat.jsonl"), accepted_only=False)
    assert (exported.count, exported.notes) == (2, ())
    said = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    roles = ["system", "user", "assistant", "user", "assistant"]
    for line, length, reply, weights in zip(
        said, (3, 5), (REFUSED, GOOD), ([0], [0, None, 1]), strict=True
    ):
        assert [message["role"] for message in line["messages"]] == roles[:length]
        assert line["messages"][-1]["content"] == reply
        weighed = [message.get("weight") for message in line["messages"]]
        assert weighed == [None, None, *weights], "what was refused weighs nothing"
    first, second = (line["metadata"] for line in said)
    assert (first["rail"], first["used"]) == ("range", False)
    assert (second["used"], second["action"], second["delta"]) == (True, "keep", -0.1)


def test_what_was_accepted_is_ready_for_fine_tuning(tmp_path: Path) -> None:
    night = own(tmp_path / "night", [rows_of(0)[0], llm_row(1), llm_row(2)])
    Conversations(night).keep(PROMPT, SENT)
    out = tmp_path / "chat.jsonl"
    exported = export_chat(night, str(out))
    assert (exported.count, exported.notes) == (2, ("2 replies were refused by the rails",))
    for line in out.read_text().splitlines():
        assert json.loads(line) == {
            "messages": [
                *(asdict(message) for message in PROMPT),
                {"role": "assistant", "content": GOOD},
            ]
        }, "and no refused reply is among what an assistant said"


def test_what_was_not_kept_or_is_not_whole_is_counted(tmp_path: Path) -> None:
    cut = tuple(attempt.model_copy(update={"truncated": True}) for attempt in ATTEMPTS)
    failed = (Attempt(raw="", error="the endpoint is down"),)
    rows = [
        rows_of(0)[0],
        llm_row(1, prompt_sha256="0" * 64),
        llm_row(2, attempts=cut),
        llm_row(3, kind="sampler", attempts=failed, fallback="down"),
    ]
    night = own(tmp_path / "night", rows)
    exported = export_chat(night, str(tmp_path / "chat.jsonl"))
    assert exported.count == 0
    assert exported.notes == (
        "2 exchanges are without their prompt, which was not kept",
        "3 exchanges brought no whole reply",
    )


def test_a_file_is_never_replaced_and_only_written_whole(subject: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    out.write_text("mine")
    with pytest.raises(FormatError):
        export_csv(subject, str(out))
    assert out.read_text() == "mine"
    out.unlink()
    damaged = own(tmp_path / "damaged", rows_of(2))
    journal = damaged / JOURNAL_FILE
    journal.write_text(journal.read_text() + '{"kind": "unheard of"}\n')
    with pytest.raises(JournalError, match="line 7"):
        export_csv(damaged, str(out))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["damaged"]
    assert export_csv(subject, str(out)).count > 30
    assert at(0)[:4] in out.read_text()


@pytest.mark.parametrize("folder", ["feature%2Fmain", "qu?ery", "a{lr}b", "a#b c:d@e"])
def test_a_path_with_any_characters_has_its_database_inside(folder: str, tmp_path: Path) -> None:
    directory = own(tmp_path / folder / "c", rows_of(2))
    export_optuna(directory, str(directory / "study.sqlite"))
    export_mlflow(directory, str(directory / "mlflow.sqlite"))
    assert {path.name for path in tmp_path.iterdir()} == {folder}
    for name in ("study.sqlite", "mlflow.sqlite"):
        path = directory / name
        assert path.stat().st_size > 0
        assert sqlite_path(sqlite_url(path)) == path


def test_a_pruned_trial_did_not_fail_in_mlflow() -> None:
    pruned = TrialFailed(status="pruned", message="far behind", steps=20)
    ended = [trial(1, config(), 0, one) for one in (ok(3.0), pruned, failed())]
    assert list(map(run_status, ended)) == ["FINISHED", "KILLED", "FAILED"]
