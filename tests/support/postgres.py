"""A real PostgreSQL server of a test's own, where the machine has its programs."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote


def programs() -> Path | None:
    """The directory of initdb and pg_ctl; None where they are not installed."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def why_not() -> str | None:
    """Why no server can be started here; None where one can."""
    if programs() is None:
        return "PostgreSQL's initdb is not installed"
    if os.geteuid() == 0 and _server_user() is None:
        return "PostgreSQL refuses to run as root and there is no user postgres"
    return None


@contextmanager
def server() -> Iterator[str]:
    """A server on a socket in a temporary directory; the SQLAlchemy URL of its database."""
    bin_dir = programs()
    assert bin_dir is not None
    user = _server_user() if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        home = Path(name)
        if user is not None:
            home.chmod(0o755)
            os.chown(home, pwd.getpwnam(user).pw_uid, -1)

        def call(*arguments: str | Path) -> None:
            subprocess.run(
                arguments, user=user, cwd=home, check=True, capture_output=True, timeout=120
            )

        data = home / "data"
        call(bin_dir / "initdb", "-D", data, "-U", "lab", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{home}' -c fsync=off"
        control = bin_dir / "pg_ctl"
        call(control, "-D", data, "-w", "-l", home / "log", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://lab:secret@/postgres?host={quote(str(home), safe='')}"
        finally:
            call(control, "-D", data, "-m", "immediate", "stop")


def _server_user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None
