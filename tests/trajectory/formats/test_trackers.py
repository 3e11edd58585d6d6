"""Import what experiment trackers wrote, and refuse what none of them wrote."""

import gzip
import pickle
import sqlite3
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoresearch.errors import FormatError
from tests.support.places import ROOT
from tests.support.present import known
from trajectory.formats.foreign import ForeignRun, more_is_better
from trajectory.formats.importing import import_campaign, read_campaign_source, read_imported
from trajectory.formats.source import SourcePart
from trajectory.formats.standings import Standings

KEPT = ROOT / "tests" / "trajectory" / "fixtures" / "trackers"
"""Written by Optuna 3.6.1 and 4.5.0; the installed Optuna writes its own below."""
CSV = (
    '"Name","State","Created","lr","optimizer","seed","_step","val_loss","train/loss"\n'
    '"calm-3","crashed","2026-11-03T10:00:00.000Z","0.1","adamw","1","9","",""\n'
    '"calm-2","finished","2026-11-02T10:00:00.000Z","0.01","adamw","2","99","3.5","3.1"\n'
    '"calm-1","finished","2026-11-01T10:00:00.000Z","0.01","adamw","1","99","3.4","3.0"\n'
    '"calm-4","running","2026-11-04T10:00:00.000Z","0.02","adamw","1","5","3.9","3.8"\n'
)


def runs_of(path: Path) -> tuple[ForeignRun, ...]:
    return known(read_campaign_source(path).foreign).runs


def unpacked(name: str, folder: Path) -> Path:
    file = folder / name
    file.write_bytes(gzip.decompress((KEPT / f"{name}.gz").read_bytes()))
    return file


def optuna_of_today(storage: Any) -> None:
    def objective(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        depth = trial.suggest_int("n_layer", 1, 4)
        trial.suggest_categorical("activation", ["gelu", "swiglu"])
        if trial.number == 3:
            raise ValueError("diverged")
        if trial.number == 4:
            raise optuna.TrialPruned
        return 3 + abs(depth - 2) * 0.1 + (lr - 0.01) ** 2

    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(storage=storage, study_name="night", sampler=sampler)
    study.enqueue_trial({"lr": 0.01, "n_layer": 2, "activation": "gelu"})
    study.optimize(objective, n_trials=8, catch=(ValueError,))


@pytest.mark.parametrize("written", ["3.6.1.db", "3.6.1.log", "4.5.0.db", "4.5.0.log", "db", "log"])
def test_a_study_of_optuna_is_imported(tmp_path: Path, written: str) -> None:
    if written[0].isdigit():
        file = unpacked(f"optuna-{written}", tmp_path)
    else:
        file = tmp_path / f"study.{written}"
        backend = optuna.storages.journal.JournalFileBackend
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optuna_of_today(
                f"sqlite:///{file}"
                if written == "db"
                else optuna.storages.JournalStorage(backend(str(file)))
            )
    before = file.read_bytes()
    runs = runs_of(file)
    assert [run.score is None for run in runs] == [False] * 3 + [True] * 2 + [False] * 3
    assert runs[0].is_baseline
    assert runs[0].values == {"lr": 0.01, "n_layer": 2, "activation": "gelu"}
    assert runs[0].score == 3
    values = [run.values for run in runs if run.score is not None]
    assert all(isinstance(one["n_layer"], int) for one in values if one)
    assert {one["activation"] for one in values if one} == {"gelu", "swiglu"}
    measured = [run for run in runs if run.score is not None and run.values]
    for run in measured:
        depth, lr = int(run.values["n_layer"]), float(run.values["lr"])  # type: ignore[index, arg-type]
        assert run.score == pytest.approx(3 + abs(depth - 2) * 0.1 + (lr - 0.01) ** 2)
    assert file.read_bytes() == before
    assert list(tmp_path.glob("study.*")) in ([file], [])


def test_one_of_several_studies_is_chosen_and_a_maximized_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    for name, direction in (("down", "minimize"), ("up", "maximize")):
        study = optuna.create_study(
            storage=f"sqlite:///{file}", study_name=name, direction=direction
        )
        study.optimize(lambda trial: 2 + trial.suggest_float("x", 0, 1), n_trials=2)
    with pytest.raises(FormatError):
        read_campaign_source(file)
    import_campaign(file, tmp_path / "down", wanted=SourcePart(study="down"))
    assert len(read_imported(tmp_path / "down").runs) == 2
    for study_name in ("up", "none"):
        with pytest.raises(FormatError):
            import_campaign(file, tmp_path / study_name, wanted=SourcePart(study=study_name))
        assert not (tmp_path / study_name).exists()


def test_a_table_of_weights_and_biases_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text(CSV)
    runs = runs_of(file)
    assert [(run.name, run.score) for run in runs] == [
        ("calm-1", 3.4),
        ("calm-2", 3.5),
        ("calm-3", None),
    ]
    assert runs[0].values == runs[1].values == {"lr": 0.01, "optimizer": "adamw"}
    noise = known(Standings.of(runs).noise)
    assert noise.sigma == pytest.approx(0.1 / 2**0.5)
    import_campaign(file, tmp_path / "other", wanted=SourcePart(metric="train/loss"))
    assert [run.score for run in read_imported(tmp_path / "other").runs] == [3.0, 3.1, None]


@pytest.mark.parametrize(
    ("metric", "higher"),
    [
        *(
            (name, True)
            for name in ("val_acc", "testAccuracy", "acc@5", "R2", "roc_auc", "f1_score")
        ),
        *((name, True) for name in ("charts/episodic_return", "neg_mse", "top1", "mAP50")),
        *((name, False) for name in ("mse", "accuracy_loss", "errorRate", "neg_log_likelihood")),
        *((name, False) for name in ("val_bpb", "time_to_accuracy", "bits_per_symbol")),
        *((name, None) for name in ("score", "objective", "accept_share", "mapper")),
    ],
)
def test_the_better_direction_is_read_from_a_metrics_name(metric: str, higher: bool | None) -> None:
    assert more_is_better(metric) is higher


@pytest.mark.parametrize(("metric", "asked"), [("acc", "acc"), ("acc", None), ("score", None)])
def test_no_metric_is_ranked_upside_down(tmp_path: Path, metric: str, asked: str | None) -> None:
    file = tmp_path / "export.csv"
    name = metric.replace("score", "my/score")
    file.write_text(f"Name,State,lr,{name}\na,finished,1,0.5\nb,finished,2,0.9\n")
    with pytest.raises(FormatError, match="--metric") as refused:
        import_campaign(file, tmp_path / "new", wanted=SourcePart(metric=asked))
    assert "\n" not in str(refused.value)
    if metric == "score":
        import_campaign(file, tmp_path / "new", wanted=SourcePart(metric="my/score"))
        assert [run.score for run in read_imported(tmp_path / "new").runs] == [0.9, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_mlflow_is_imported(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="pip install '.[mlflow]'")
    place = tmp_path / ("mlflow.db" if kind == "sqlite" else "mlruns")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uri = f"sqlite:///{place}" if kind == "sqlite" else f"file:{place}"
        client = tracking.MlflowClient(tracking_uri=uri)
        experiment = client.create_experiment("night", artifact_location=str(tmp_path / "art"))
        for number, name in enumerate(["first", "baseline", "lost"]):
            run = client.create_run(experiment, run_name=name).info.run_id
            client.log_param(run, "lr", 0.01 * (number + 1))
            client.log_param(run, "opt/name", "adamw")
            for step, loss in enumerate([5.0, 3.0 + number]):
                client.log_metric(run, "val_loss", loss, step=step)
            client.set_terminated(run, "FAILED" if name == "lost" else "FINISHED")
        client.delete_run(client.create_run(experiment, run_name="deleted").info.run_id)
    runs = {run.name: run for run in runs_of(place)}
    assert runs.keys() == {"first", "baseline", "lost"}
    assert runs["baseline"].is_baseline
    assert runs["first"].values == {"lr": 0.01, "opt/name": "adamw"}
    assert [runs[name].score for name in ("first", "baseline", "lost")] == [3.0, 4.0, None]


@pytest.mark.slow
def test_event_files_of_tensorboard_are_imported(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install '.[tensorboard]'")
    from torch.utils.tensorboard import SummaryWriter

    for number in range(3):
        with SummaryWriter(str(tmp_path / "logs" / f"run{number}")) as writer:
            for step in range(3):
                writer.add_scalar("val_loss", 4 - step + number / 4, step)
            writer.add_hparams({"lr": 0.25 * (number + 1), "norm": "rms", "depth": 2}, {"h": 1.0})
    runs = runs_of(tmp_path / "logs")
    assert [run.name for run in runs] == ["run0", "run1", "run2"]
    assert [run.score for run in runs] == [2.0, 2.25, 2.5]
    assert runs[1].values == {"lr": 0.5, "norm": "rms", "depth": 2}
    file = next((tmp_path / "logs" / "run0").glob("*tfevents*"))
    file.write_bytes(file.read_bytes()[:-7])
    assert runs_of(tmp_path / "logs")[0].score in {2.0, 3.0}


def hostile_database(path: Path, what: str) -> None:
    with sqlite3.connect(path) as connection:
        for name in ("studies", "study_directions", "trials", "trial_params", "trial_values"):
            connection.execute(f"CREATE TABLE {name} (study_id, study_name, direction, trial_id, "
                               "number, state, datetime_start, param_id, param_name, param_value, "
                               "distribution_json, value)")  # fmt: skip
        connection.execute("INSERT INTO studies (study_id, study_name) VALUES (1, 's')")
        connection.execute(
            "INSERT INTO study_directions (study_id, direction) VALUES (1, 'MINIMIZE')"
        )
        connection.execute("INSERT INTO trials (trial_id, study_id, number) VALUES (1, 1, 'x')")
        connection.execute(
            "INSERT INTO trial_params (trial_id, study_id, param_value, distribution_json) "
            "VALUES (1, 1, NULL, ?)",
            (what,),
        )
    connection.close()


ENDLESS = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t"
STUBBORN = "instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || 1)"
OF_OPTUNA = "studies study_directions trials trial_params trial_values".split()


@pytest.mark.parametrize("kind", ["view", "generated column", "generated column of MLflow"])
@pytest.mark.timeout(60)
def test_a_database_that_computes_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "study.db"
    with sqlite3.connect(file) as database:
        if kind == "view":
            for name in OF_OPTUNA:
                database.execute(f"CREATE TABLE {name} (study_id, study_name)")
            database.execute("INSERT INTO studies VALUES (1, 's')")
            database.execute("CREATE TABLE version_info (x)")
            for name in ("trials", "version_info"):
                database.execute(f"DROP TABLE {name}")
                database.execute(f"CREATE VIEW {name} (study_id) AS {ENDLESS}")
            database.execute("CREATE TABLE [TRIALS 2] (x)")
        elif kind == "generated column":
            for name in OF_OPTUNA:
                slow = "study_name AS (1 + 1)" if name == "studies" else "y"
                database.execute(f"CREATE TABLE {name} (study_id, {slow})")
            database.execute("INSERT INTO studies (study_id) VALUES (1)")
        else:
            for name in ("experiments", "params", "latest_metrics"):
                database.execute(f"CREATE TABLE {name} (experiment_id, run_uuid, name, key, value)")
            database.execute(
                "CREATE TABLE runs (run_uuid, experiment_id, name, status, start_time, "
                "lifecycle_stage AS (1 + 1))"
            )
            database.execute("INSERT INTO runs (run_uuid, experiment_id) VALUES ('a', 1)")
            database.execute("INSERT INTO experiments (experiment_id, name) VALUES (1, 'a')")
        database.execute("PRAGMA writable_schema = ON")
        database.execute(f"UPDATE sqlite_master SET sql = replace(sql, '1 + 1', {STUBBORN!r})")
    database.close()
    with pytest.raises(FormatError):
        import_campaign(file, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_hostile_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    whole = unpacked("optuna-4.5.0.db", tmp_path).read_bytes()
    files = {
        "cut.db": whole[:5000],
        "empty.db": whole[:16],
        "other.pkl": pickle.dumps({"lr": 1}),
        "header.csv": b"Name,State\n",
        "nul.csv": b"Name,State\na,\0\n",
        "wide.csv": b"Name,State,val_loss\n" + b'"' + b"x" * 200_000 + b'",finished,3\n',
        "journal.log": b'{"op_code": 0, "worker_id": "w"}\n{"op_code": [], "worker_id": 1}\n',
        "events.out.tfevents.1": b"\x18" + b"\0" * 40,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for number, text in enumerate(["{", "[]", '{"name": "Int", "attributes": 1}', "[" * 10**5]):
        hostile_database(tmp_path / f"types{number}.db", text)
        files[f"types{number}.db"] = b""
    for name in ("sqlite_of_another.db",):
        sqlite3.connect(tmp_path / name).executescript("CREATE TABLE t (a);").connection.close()
        files[name] = b""
    (tmp_path / "folder" / "1" / "2").mkdir(parents=True)
    (tmp_path / "folder" / "1" / "2" / "meta.yaml").symlink_to("/dev/zero")
    for name in [*files, "folder"]:
        with pytest.raises(FormatError) as refused:
            import_campaign(tmp_path / name, tmp_path / "new")
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 1000
        assert not (tmp_path / "new").exists()


def test_facts_about_a_run_are_no_settings(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text(
        "Name,State,Created,lr,best_epoch,git_commit,run_id,max_steps,n_layer,val_loss\n"
        "a,finished,2026-01-01,0.1,7,abc,1,100,2,3.0\n"
        "b,finished,2026-01-02,0.2,8,def,2,100,3,2.9\n"
    )
    import_campaign(file, tmp_path / "taken")
    runs = read_imported(tmp_path / "taken").runs
    assert [set(run.values or {}) for run in runs] == [{"lr", "max_steps", "n_layer"}] * 2
    assert [run.changes for run in runs] == [None, {"lr": 0.2, "n_layer": 3}]
