"""Test that a tracker which is slow, failing or gone costs the loop nothing."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from agent.loggers.background import BackgroundLogger, LoggingWatcher, LogTarget, log_targets
from agent.loggers.base import RunEvent, RunLogger, TrialBegan, TrialPoint
from agent.search.trial import Watcher, Watchers
from autoresearch.errors import SettingsError
from tests.support.configs import config
from tests.support.rows import baseline_row, iteration_row, ok, trial
from tests.support.trials import trial_spec
from trainer.schema import CurvePoint, Place

ROW = iteration_row(1, None)
POINT = CurvePoint(step=1, tokens=64, loss=5.0, lr=1e-3, grad_norm=1.0, elapsed_s=0.1)


@dataclass
class Fake:
    """Keep the events it receives; ``on_log`` may raise or block."""

    on_log: Callable[[], object] = lambda: None
    on_close: Callable[[], object] = lambda: None
    seen: list[RunEvent] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)

    def log(self, event: RunEvent) -> None:
        self.on_log()
        self.seen.append(event)

    def close(self) -> None:
        self.closed.set()
        self.on_close()


def raises(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def broken_opener() -> RunLogger:
    raise ConnectionError("no such\nhost")


@pytest.mark.parametrize(
    ("opener", "said"),
    [
        (broken_opener, "ConnectionError: no such host"),
        (lambda: Fake(on_log=raises(ValueError("a bad number"))), "ValueError: a bad number"),
        (lambda: Fake(on_close=raises(OSError("disk full"))), "OSError: disk full"),
        (lambda: Fake(on_log=raises(SettingsError("no key"))), "(no key)"),
    ],
)
def test_one_that_raises_is_given_up_and_quoted(opener: Callable[[], RunLogger], said: str) -> None:
    logger = BackgroundLogger("x", opener)
    for _ in range(1000):
        logger.log(ROW)
    logger.close()
    assert logger.trouble is not None
    assert "--log x" in logger.trouble
    assert said in logger.trouble
    logger.log(ROW)
    logger.close()


@pytest.mark.parametrize(("hangs", "events"), [("opening", 2), ("logging", 1000), ("closing", 2)])
def test_one_that_hangs_never_makes_the_loop_wait(hangs: str, events: int) -> None:
    never = threading.Event()

    def opener() -> RunLogger:
        if hangs == "opening":
            never.wait()
        return Fake(**{"on_log" if hangs == "logging" else "on_close": never.wait})

    logger = BackgroundLogger("x", opener, queue_events=50)
    for _ in range(events):  # would block forever if the loop waited for the logger
        logger.log(ROW)
    assert (logger.trouble is not None) == (hangs == "logging"), "it is too many events behind"
    logger.close(0.05)
    assert logger.trouble is not None
    never.set()


def test_what_hangs_at_the_end_does_not_keep_another_from_finishing() -> None:
    never, troubles = threading.Event(), list[str]()
    loggers = [BackgroundLogger(str(i), lambda: Fake(on_close=never.wait)) for i in range(3)]
    slow = Fake()
    loggers.append(BackgroundLogger("fine", lambda: slow))
    LoggingWatcher(loggers, troubles.append).close(0.5)
    assert len(troubles) == 3
    assert slow.closed.is_set()
    never.set()


def test_the_watcher_passes_everything_on_and_drops_what_fails_once() -> None:
    fine, display, troubles = Fake(), Mock(spec=Watcher), list[str]()
    loggers = [BackgroundLogger("fine", lambda: fine), BackgroundLogger("broken", broken_opener)]
    logging = LoggingWatcher(loggers, troubles.append)
    watcher = Watchers(display, logging)
    of = config()
    spec = trial_spec(trial_id="t000007", config=of)
    record = trial(7, of, 0, ok(3.5))
    baseline = baseline_row(1, 3.5, 0)
    watcher.baseline_measured(baseline)
    watcher.proposing(1)
    watcher.trial_started(spec, "candidate")
    watcher.trial_placed("t000007", Place(lane="1"))
    watcher.trial_point("t000007", POINT)
    watcher.trial_ended(record)
    watcher.note("hm")
    loggers[1]._thread.join()
    watcher.iteration_ended(ROW)
    watcher.iteration_ended(ROW)
    logging.close()
    trial_events = TrialBegan(spec, "candidate"), TrialPoint("t000007", POINT), record
    assert fine.seen == [baseline, *trial_events, ROW, ROW]
    assert len(troubles) == 1
    assert "--log broken" in troubles[0]
    expected = "baseline_measured proposing trial_started trial_placed trial_point trial_ended note"
    calls = [call[0] for call in display.method_calls]
    assert calls == [*expected.split(), "iteration_ended", "iteration_ended"]


def test_what_log_may_say() -> None:
    targets = log_targets(["tensorboard", "tensorboard:/tmp/x", "tensorboard"])
    assert targets == (LogTarget("tensorboard", ""), LogTarget("tensorboard", "/tmp/x"))
    assert LogTarget.parse("mlflow:http://host:5000").where == "http://host:5000"
    for text in ("", "wandbx", "tensorbord:/x", "Mlflow"):
        with pytest.raises(SettingsError):
            LogTarget.parse(text)
