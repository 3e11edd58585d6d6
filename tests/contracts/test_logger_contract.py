import json
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.loggers.background import LogTarget
from agent.loggers.base import CampaignFacts, RunEvent, TrialBegan, TrialPoint
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from tests.support.trials import trial_spec
from trainer.schema import CurvePoint
from trajectory.rows import Decision

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CONFIG = config()
POINTS = [
    CurvePoint(step=s, tokens=64 * s, loss=6.0 - s, lr=1e-3, grad_norm=1.0, elapsed_s=0.1 * s)
    for s in (1, 2, 3)
]


def night(first: int = 1) -> Iterator[RunEvent]:
    """Yield a baseline, an iteration that was kept, a failed trial and a resumed one."""
    for number, result in ((first, ok(3.5)), (first + 1, ok(3.4)), (first + 2, failed())):
        yield TrialBegan(trial_spec(trial_id=f"t{number:06d}", config=CONFIG), "candidate")
        for point in POINTS:
            yield TrialPoint(f"t{number:06d}", point)
        yield trial(number, CONFIG, 0, result)
    yield baseline_row(first, 3.5, 0)
    yield trial(first + 3, CONFIG, 0, ok(3.3))
    decision = Decision(action="keep", delta=-0.1, stderr=0.02, estimate_objective=3.4)
    yield iteration_row(first, CONFIG, (trial(first + 1, CONFIG, 0, ok(3.4)),), decision=decision)


def mlflow_numbers(directory: Path) -> set[tuple[str, float, int]]:
    with sqlite3.connect(directory / "mlflow.sqlite") as database:
        return set(database.execute("select key, value, step from metrics").fetchall())


def tensorboard_numbers(directory: Path) -> set[tuple[str, float, int]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = set()
    for path in (directory / "tensorboard").rglob("events.*"):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                name = value.tag.rpartition("/")[2]
                found.add((name, round(value.tensor.float_val[0], 4), event.step))
    return found


def wandb_numbers(directory: Path) -> set[tuple[str, float, int]]:
    found = set()
    for record in wandb_records(directory):
        row = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        step = row.get("trial/step", row.get("iter", 0))
        found |= {(key.rpartition("/")[2], value, step) for key, value in row.items()}
    return found


def wandb_records(directory: Path) -> list[Any]:
    """Return the records of every run here, once each is complete.

    The writer is another process, which continues after the run was finished.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    while True:
        records: list[Any] = []
        paths = list((directory / "wandb").glob("offline-run-*/*.wandb"))
        for path in paths:
            for data in leveldb_log(path.read_bytes()[7:]):
                records.append(Record())
                records[-1].ParseFromString(data)
        ended = sum(record.WhichOneof("record_type") == "exit" for record in records)
        if paths and ended == len(paths):
            return records
        time.sleep(0.05)


def leveldb_log(data: bytes) -> Iterator[bytes]:
    """Yield the records of W&B's transaction log, after its own header.

    The format is LevelDB's log, in blocks of 32 KiB; the first block is shorter by that header.
    """
    place, whole = 0, b""
    while place + 7 <= len(data):
        left = 32768 - (place + 7) % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if place + 7 + length > len(data):
            return  # the rest is not written yet
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # a whole record, or its last part
            yield whole
            whole = b""


NUMBERS: dict[str, Callable[[Path], set[tuple[str, float, int]]]] = {
    "mlflow": mlflow_numbers,
    "tensorboard": tensorboard_numbers,
    "wandb": wandb_numbers,
}


@pytest.fixture(params=list(NUMBERS))
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    module = pytest.importorskip(request.param)
    if request.param == "wandb":
        module.teardown()  # a process keeps the settings of its first run
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return str(request.param)


def run(tracker: str, directory: Path, events: Iterator[RunEvent], where: str = "") -> Any:
    facts = CampaignFacts.of(directory, campaign_row())
    logger = LogTarget(tracker, where).started(facts)
    for event in events:
        logger.log(event)
    logger.close()
    return logger


def test_numbers_arrive_and_a_resumed_loop_appends_to_them(tracker: str, tmp_path: Path) -> None:
    assert run(tracker, tmp_path, night()).trouble is None
    found = NUMBERS[tracker](tmp_path)
    assert {("loss", 5.0, 1), ("loss", 4.0, 2), ("loss", 3.0, 3)} <= found
    assert {("delta", -0.1, 1), ("kept", 1.0, 1)} <= found
    scores = {value for name, value, _ in found if name == "val_bpb"}
    assert {3.5, 3.4} <= scores <= {3.5, 3.4, 3.3}, "a failed trial has no score"
    assert "peak_mem_gib" in {name for name, _, _ in found}
    if tracker == "wandb":
        time.sleep(1)  # it names a run's folder by the second
    assert run(tracker, tmp_path, night(first=11)).trouble is None
    found = NUMBERS[tracker](tmp_path)
    assert {("delta", -0.1, 1), ("delta", -0.1, 11)} <= found


def test_a_place_that_cannot_be_used_is_trouble_and_no_more(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    if tracker == "wandb":  # it finds a folder on any disk, so the missing part is a key
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
    logger = run(tracker, tmp_path, night(), str(tmp_path / "file" / "below"))
    assert logger.trouble is not None
    assert "\n" not in logger.trouble
    assert tracker in logger.trouble
