"""Provide a real PostgreSQL server for one test, if the machine has its programs."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil


def programs() -> Path | None:
    """Return the directory of initdb and pg_ctl, or None if they are not installed."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def why_not() -> str | None:
    """Return why no server can be started here, or None."""
    if programs() is None:
        return "PostgreSQL's initdb is not installed"
    if os.geteuid() == 0 and _server_user() is None:
        return "PostgreSQL refuses to run as root and there is no user postgres"
    return None


class Server:
    """Hold a server on a socket in its own directory, which may be killed and started again."""

    def __init__(self, home: Path) -> None:
        bin_dir = programs()
        assert bin_dir is not None
        self.url = f"postgresql+psycopg://lab:secret@/postgres?host={quote(str(home), safe='')}"
        """SQLAlchemy's URL of its database."""
        self._home = home
        self._data = home / "data"
        self._control = bin_dir / "pg_ctl"
        self._user = _server_user() if os.geteuid() == 0 else None
        if self._user is not None:
            home.chmod(0o755)
            os.chown(home, pwd.getpwnam(self._user).pw_uid, -1)
        initdb = bin_dir / "initdb"
        self._call(initdb, "-D", self._data, "-U", "lab", "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._home}' -c fsync=off"
        log = self._home / "log"
        self._call(self._control, "-D", self._data, "-w", "-l", log, "-o", options, "start")

    def kill(self) -> None:
        """Kill all its processes at once, as a power loss would: nothing is cleaned up."""
        doomed = self._processes()
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(doomed, timeout=30)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Suspend all its processes: its kernel still acknowledges packets, and no answer comes."""
        stopped = self._processes()
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()

    def stop(self) -> None:
        """Stop the server if it runs."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self._call(self._control, "-D", self._data, "-m", "immediate", "stop")

    def _processes(self) -> list[psutil.Process]:
        first = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        return [first, *first.children(recursive=True)]

    def _call(self, *arguments: str | Path) -> None:
        subprocess.run(
            arguments, user=self._user, cwd=self._home, check=True, capture_output=True, timeout=120
        )


@contextmanager
def running() -> Iterator[Server]:
    """Yield a server in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        server = Server(Path(name))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _server_user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None
