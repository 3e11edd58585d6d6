"""A trial's process reports to the fork server on one line, and a config cannot report more."""

import os
from pathlib import Path

from tests.support import hostile
from tests.support.trials import trial_spec
from tests.trainer.isolation.test_forkserver import open_executor
from trainer.isolation.messages import Driver, DriverEar, Said
from trainer.schema import TrialFailed


def test_what_a_config_decides_cannot_speak_of_the_driver(tmp_path: Path) -> None:
    """Otherwise a config's crash would count as the machine's, and not as evidence."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.say_everything)
    with open_executor() as executor:
        result = executor.run(trial_spec(), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("crash", "exit code 9")


def test_one_report_is_accepted_after_those_about_the_driver() -> None:
    result, error = Said(text="{}"), Said(text="no", is_error=True)
    starting, up = Driver(phase="starting"), Driver(phase="up")
    for after, heard in (
        ([], []),
        ([starting], []),
        ([Driver(phase="settled")], []),
        ([result], [result]),
        ([result, error], [result]),
        ([error, starting, result], [error]),
        (["prose", result], []),
        (["", result], []),
    ):
        ear = DriverEar()
        for report in (starting, up, Driver(phase="settled"), *after):
            text = report if isinstance(report, str) else report.model_dump_json()
            os.write(ear.their_fd, text.encode())
        assert ear.hear() == [starting, up, *heard]
        ear.as_server()
        assert ear.hear() is None
        ear.close()
