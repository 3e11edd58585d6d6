"""A campaign's process on a cluster, which is restarted after each end."""

import signal
import subprocess
from pathlib import Path

from tests.support.campaigns import Toy

_ENDS_WITHIN_S = 180.0
"""Time limit to end after a signal that lets trials finish, on a machine with other load."""
_OF_A_CAMPAIGN_THAT_STOPS = 1
_OF_ONE_THAT_IS_STOPPED = 130


class Driver:
    """``autoresearch loop`` in its own directory."""

    def __init__(self, toy: Toy, address: str, lanes: int) -> None:
        self._toy = toy
        self._asked = [f"--executor=ray:{address}", f"--lanes={lanes}", "--threads=1"]
        self._process: subprocess.Popen[str] | None = None
        self._said = toy.home / "said"
        self.faults: list[str] = []
        """Faults in its output or its exit, since the last time they were taken."""
        self.stopped_itself = 0
        """Number of stops with a message, as intended if a trial is lost three times."""

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def go_on(self, iterations: int) -> None:
        """Start the campaign if it does not run, also after it stopped with a message."""
        if self.runs:
            return
        if self._process is not None:
            self._check_exit(self._process)
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                self._toy.arguments(iterations, *self._asked),
                cwd=self._toy.home,
                env=self._toy.environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
            )

    def end(self, *signals: signal.Signals) -> bool:
        """Send these signals and wait for its end; return whether it was running."""
        if self._process is None or not self.runs:
            return False
        for number in signals:
            self._process.send_signal(number)
        code = self._wait(self._process)
        expected = {-signals[0], _OF_ONE_THAT_IS_STOPPED, _OF_A_CAMPAIGN_THAT_STOPS}
        self._judge(code, expected if signals[0] != signal.SIGKILL else {-signal.SIGKILL})
        self._process = None
        return True

    def finish(self, iterations: int) -> int:
        """Let it reach that iteration; return its exit code."""
        self.go_on(iterations)
        assert self._process is not None
        code = self._process.wait()
        self._judge(code, {0, _OF_A_CAMPAIGN_THAT_STOPS})
        self._process = None
        return code

    def _wait(self, process: subprocess.Popen[str]) -> int:
        try:
            return process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.faults.append(f"the driver did not end within {_ENDS_WITHIN_S:g} s")
            process.kill()
            return process.wait()

    def _check_exit(self, process: subprocess.Popen[str]) -> None:
        """Check the exit of a process that ended by itself, and count it."""
        self._judge(process.wait(), {0, _OF_A_CAMPAIGN_THAT_STOPS})
        self.stopped_itself += 1

    def _judge(self, code: int, expected: set[int]) -> None:
        said = self._said.read_text(errors="replace")
        if code not in expected:
            self.faults.append(f"the driver ended with {code}: {_last_line(said)}")
        elif code == _OF_A_CAMPAIGN_THAT_STOPS:
            print(f"  stopped: {_last_line(said)}", flush=True)
        if "Traceback" in said:
            self.faults.append(f"the driver's end was not a sentence: {_last_line(said)}")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"


def keep_output(driver_home: Path, into: Path) -> None:
    """Copy the driver's output, to find the cause of a fault."""
    into.write_bytes((driver_home / "said").read_bytes())
