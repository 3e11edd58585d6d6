"""Check that all that is printed goes through the stream that removes secrets."""

import os
import subprocess
import sys

import pytest

SECRET = "hunter2-hunter2-hunter2"
PROGRAM = """
import sys, typer
from autoresearch import screen
screen.protect()
typer.echo(sys.argv[1])
print(sys.argv[1])
"""


def printed(encoding: str, text: str, stdout: int = subprocess.PIPE) -> tuple[int, bytes]:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "MY_API_KEY": SECRET}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, text], env=environment, stdout=stdout, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_no_encoding_leads_past_the_screen(encoding: str) -> None:
    code, shown = printed(encoding, f"key {SECRET} \N{BULLET} \N{GRINNING FACE}")
    assert code == 0
    assert shown.count(b"key ") == 2
    assert SECRET.encode() not in shown
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert printed(encoding, "nobody reads this", writer)[0] == 0
    finally:
        os.close(writer)
