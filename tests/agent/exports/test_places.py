import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.exports.forms import Exported, export_csv, export_mlflow
from agent.exports.optuna_study import export_optuna
from autoresearch.errors import FormatError
from tests.support.places import NIGHT
from trajectory.formats import mlflow_runs

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    (tmp_path / "night").mkdir()
    lines = (NIGHT / "trajectory.jsonl").read_text("utf-8").splitlines(True)
    (tmp_path / "night" / "trajectory.jsonl").write_text("".join(lines[:5]), "utf-8")
    return tmp_path / "night"


def to_mlflow(subject: Path, where: str) -> Exported:
    pytest.importorskip("mlflow")
    return export_mlflow(subject, where)


EXPORTS = {"csv": export_csv, "optuna": export_optuna, "mlflow": to_mlflow}


@pytest.mark.parametrize("name", EXPORTS)
@pytest.mark.parametrize("place", ["a folder", "/dev/null"])
def test_what_is_no_file_is_untouched(subject: Path, tmp_path: Path, name: str, place: str) -> None:
    (tmp_path / "a folder").mkdir()
    with pytest.raises(FormatError):
        EXPORTS[name](subject, str(tmp_path / place))
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["optuna", "mlflow"])
def test_another_programs_database_is_refused(subject: Path, tmp_path: Path, first: str) -> None:
    where = str(tmp_path / "one.sqlite")
    then = "mlflow" if first == "optuna" else "optuna"
    EXPORTS[first](subject, where)
    with pytest.raises(FormatError) as raised:
        EXPORTS[then](subject, where)
    assert "\n" not in str(raised.value)


def test_a_file_address_names_mlflows_folder(
    subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert to_mlflow(subject, "file:./mlruns").count == 4
    assert len(list((tmp_path / "mlruns").glob("*/*/meta.yaml"))) == 4
    assert not list(tmp_path.glob("file:*"))


@pytest.mark.parametrize("name", ["optuna", "mlflow"])
def test_half_a_url_is_no_file_name(
    subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FormatError):
        EXPORTS[name](subject, "sqlite:night.db")
    assert not list(tmp_path.glob("sqlite:*"))


@pytest.fixture
def silent() -> Iterator[str]:
    """Yield the URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_server_is_given_up_soon(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(mlflow_runs, "KNOCK_S", 0.5)
    with pytest.raises(FormatError):
        mlflow_runs.mlflow_client(silent)
