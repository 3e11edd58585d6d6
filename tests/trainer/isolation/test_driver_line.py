"""A trial's process reports to the fork server on one line, and a config cannot report more."""

import os
from pathlib import Path

from tests.support import hostile
from tests.support.processes import of_trials
from tests.support.trials import trial_spec
from tests.trainer.isolation.test_forkserver import open_executor
from trainer.isolation.messages import Driver, DriverEar, Said
from trainer.spec import TrialFailed


def test_no_process_waits_below_the_server_between_two_trials(tmp_path: Path) -> None:
    with open_executor() as executor:
        for name in "ab":
            executor.run(trial_spec(), hostile.arm(tmp_path / name, hostile.nap, s=0))
            assert of_trials(executor) == []


def test_what_a_config_decides_cannot_speak_of_the_driver(
    tmp_path: Path,
) -> None:
    """Otherwise a config's crash would count as the machine's, and not as evidence."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.say_everything)
    with open_executor() as executor:
        result = executor.run(trial_spec(), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("crash", "exit code 9")


def test_of_the_line_one_report_is_heard_after_the_driver() -> None:
    result = Said(text="{}", is_error=False)
    for after, heard in (
        (b"o", []),
        (b"so", []),
        (b"", []),
        (b"r{}\n", [result]),
        (b"r{}\nr[]\no", [result]),
        (b"r{}\no", [result]),
        (b"eno\n", [Said(text="no", is_error=True)]),
        (b"r{", []),
    ):
        ear = DriverEar()
        os.write(ear.their_fd, b"su." + after)
        words = ear.hear()
        assert words is not None
        assert words[:2] == [Driver(phase="starting"), Driver(phase="up")]
        assert words[2:] == heard
        ear.as_server()
        assert ear.hear() is None
        ear.close()


def test_a_report_in_pieces_is_heard_whole_and_one_without_end_no_more() -> None:
    ear = DriverEar()
    text = "x" * 100_000
    for piece in ("r" + text, text, "\n"):
        os.write(ear.their_fd, piece.encode())
        words = ear.hear()
    assert words == [Said(text=2 * text, is_error=False)]
    ear.close()
    ear = DriverEar()
    heard: object = []
    sent = 0
    while heard == []:
        sent += os.write(ear.their_fd, b"r" * 100_000)
        heard = ear.hear()
    assert heard is None
    assert sent < 2 << 20
    ear.as_server()
    ear.close()
