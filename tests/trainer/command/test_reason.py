"""The reason of a failure is found in what real programs print when they fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.commands import script
from trainer.command.hints import Hint
from trainer.command.raised import OwnFiles
from trainer.command.reason import Ends, Reason
from trainer.schema import MAX_MESSAGE_CHARACTERS

LOG = "trials/t000001/trainer.log"
IN_MAIN = 'if __name__ == "__main__":\n    '
WORKER = "def f(*_): raise ValueError('in a worker')\n"


def reason_of(output: bytes, *folders: Path) -> Reason:
    ends = Ends()
    ends.add(output)
    return Reason.of(ends.lines(), OwnFiles(*folders))


def run(place: Path, text: str) -> Reason:
    """Run a script until it fails, in a folder of its own, and return the reason."""
    script(place, text)
    script(place, "x = (\n", "bad.py")
    env = {**os.environ, "COLUMNS": "60"}
    (place / "work").mkdir()
    ended = subprocess.run(
        [sys.executable, str(place / "train.py")],
        cwd=place / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert ended.returncode != 0, ended.stdout
    return reason_of(ended.stdout, place / "work", place)


FAILURES = {
    "plain": ("def main():\n    raise ValueError('late')\nmain()", "ValueError: late", "2 in main"),
    "without message": ("assert 1 == 2", "AssertionError", "1 in <module>"),
    "in a library": (
        "import json\ndef load():\n    json.loads('{')\nload()",
        "json.decoder.JSONDecodeError: ",
        "3 in load",
    ),
    "of its own class": (
        "class NoSuchKey(Exception): pass\nraise NoSuchKey('k')",
        "NoSuchKey: k",
        "2 in <module>",
    ),
    "message after a blank line": (
        "raise RuntimeError('\\n\\n  the detail')",
        "RuntimeError: the detail",
        "1 in <module>",
    ),
    "message of many lines": (
        "raise RuntimeError('of GPT:\\n' + '\\n'.join('\\tkey %d' % i for i in range(99)))",
        "RuntimeError: of GPT: key 0 | key 1",
        "1 in <module>",
    ),
    "caused": (
        "def f():\n    try: {}['x']\n    except KeyError as e: raise OSError('no') from e\nf()",
        "OSError: no",
        "3 in f",
        "KeyError: 'x' (train.py:2 in f)",
    ),
    "while another is handled": (
        "try:\n    1 / 0\nexcept Exception:\n    unknown",
        "NameError: ",
        "4 in <module>",
        "ZeroDivisionError: ",
    ),
    "syntax": ("def f(:\n    pass", "SyntaxError: ", "1"),
    "syntax of a module": ("import bad", "SyntaxError: ", "bad.py:1"),
    "interrupted": ("raise KeyboardInterrupt", "KeyboardInterrupt", "1 in <module>"),
    "recursion": ("def f(): f()\nf()", "RecursionError: ", "1 in f"),
    "group": (
        "def f(i): raise (ValueError, TypeError)[i](i)\nfound = []\nfor i in (0, 1):\n"
        "    try: f(i)\n    except Exception as e: found.append(e)\n"
        "raise ExceptionGroup('2', found)",
        "ValueError: 0",
        "1 in f",
        "ExceptionGroup: 2 (2 sub-exceptions) (train.py:6 in <module>)",
    ),
    "thread": (
        "import threading\ndef f(): raise ValueError('in a thread')\n"
        "t = threading.Thread(target=f); t.start(); t.join(); raise SystemExit(3)",
        "ValueError: in a thread",
        "2 in f",
    ),
    "process": (
        f"import multiprocessing as m\n{WORKER}{IN_MAIN}p = m.Process(target=f); p.start(); "
        "p.join(); assert p.exitcode == 0",
        "AssertionError",
        "4 in <module>",
        "ValueError: in a worker (train.py:2 in f)",
    ),
    "pool": (
        f"import multiprocessing as m\n{WORKER}{IN_MAIN}m.Pool(1).map(f, [1])",
        "ValueError: in a worker",
        "2 in f",
    ),
    "executor": (
        f"from concurrent.futures import ProcessPoolExecutor as P\n{WORKER}{IN_MAIN}"
        "P(1).submit(f).result()",
        "ValueError: in a worker",
        "2 in f",
    ),
    "worker of a loader": (
        "import torch\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 1\n"
        "    def __getitem__(self, i): raise ValueError('bad item')\n"
        f"{IN_MAIN}list(torch.utils.data.DataLoader(D(), num_workers=1))",
        "ValueError: bad item",
        "4 in __getitem__",
    ),
    "spawned by torch": (
        f"import torch.multiprocessing as m\n{WORKER}{IN_MAIN}m.spawn(f)",
        "ValueError: in a worker",
        "2 in f",
    ),
    "program that it started": (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'raise ValueError(5)'], check=True)",
        "ValueError: 5",
        "2 in <module>",
    ),
    "task besides": (
        "import asyncio\nasync def m():\n    async def f(): raise ValueError('task')\n"
        "    t = asyncio.create_task(f()); await asyncio.sleep(0.01); raise OSError('main')\n"
        "asyncio.run(m())",
        "OSError: main",
        "4 in m",
    ),
    "destructor besides": (
        "class A:\n    def __del__(self): self.sock.close()\na = A()\nraise OSError(5, 'no')",
        "OSError: [Errno 5] no",
        "4 in <module>",
    ),
    "logged": (
        "import logging\ntry: 1 / 0\nexcept Exception: logging.exception('it failed')\n"
        "raise SystemExit(2)",
        "ZeroDivisionError: ",
        "2 in <module>",
    ),
    "rich": (
        "import rich.traceback; rich.traceback.install()\n"
        "def deep(): raise ValueError('late')\ndeep()",
        "ValueError: late",
        "2 in deep",
    ),
    "typer": (
        "import typer\ndef main(): raise ValueError('late')\ntyper.run(main)",
        "ValueError: late",
        "2 in main",
    ),
    "option of typer": (
        "import sys, typer\nsys.argv.append('--lx')\ntyper.run(lambda: None)",
        "Error: No such option: --lx",
        "",
    ),
    "option of argparse": (
        "import argparse\nargparse.ArgumentParser().parse_args(['--lx'])",
        "train.py: error: unrecognized arguments: --lx",
        "",
    ),
    "crash of Python": (
        "import faulthandler, os; faulthandler.enable()\ndef f(): os.abort()\nf()",
        "Fatal Python error: Aborted",
        "2 in f",
    ),
    "words": ("print('epoch 1'); raise SystemExit('no such rate')", "", ""),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES)
def test_a_failure_is_told_by_its_error_and_its_place(
    tmp_path: Path, case: tuple[str, ...]
) -> None:
    text, error, where, *also = case
    found = run(tmp_path / "script", text)
    assert found.error.startswith(error)
    assert bool(found.error) == bool(error)
    named = where if where.startswith("bad") else f"train.py:{where}"
    assert found.where == (named if where else "")
    assert found.also.startswith(tuple(also) or "")
    assert bool(found.also) == bool(also)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("open('data/x.csv')", "file missing"),
        ("import subprocess\nsubprocess.run(['no-such-program'])", "program"),
        ("import os\nos.system('no-such-program'); raise SystemExit(1)", "program"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 1))", "network"),
        ("import urllib.request as u\nu.urlopen('http://nowhere.invalid/x')", "network"),
        ("raise ValueError(13)", None),
    ],
)
def test_a_hint_is_given_by_what_failed(tmp_path: Path, text: str, cause: str | None) -> None:
    found = run(tmp_path / "script", text).hint
    assert (found and found.cause) == cause


RANKS = """\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/s/train.py", line 5, in <module>
[rank0]:   File "/s/train.py", line 4, in f
[rank1]: ValueError: rank 1
[rank0]: ValueError: rank 0
E1128 api.py:1002] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============
train.py FAILED
"""
MIXED = """\
Traceback (most recent call last):
Traceback (most recent call last):
  File "/s/train.py", line 5, in <module>
step 10: loss 3.2
  File "/s/train.py", line 5, in <module>
Epoch: 3
ValueError: one of two
"""
COLORED = (
    "\x1b[31mTraceback (most recent call last):\x1b[0m\n"
    '  File \x1b[35m"/s/.venv/x.py"\x1b[0m, line \x1b[35m7\x1b[0m, in \x1b[35mmain\x1b[0m\n'
    '  File "/s/lib/site-packages/x.py", line 7, in main\n'
    "\x1b[1;35mValueError\x1b[0m: \x1b[35mred\x1b[0m\n"
)
STACK = "".join(f"  [bt] ({i}) /lib/libx.so(+0x{i}) [0x7f00]\n" for i in range(200))
LONG_AGO = COLORED + "\n" + "step\n" * 200
METRICS = "error: 0.25\nTest Error: 3.1e-2\nMean squared error = 2\n"


@pytest.mark.parametrize(
    ("output", "error", "where", "last"),
    [
        (RANKS, "ValueError: rank 0", "train.py:4 in f", ""),
        (MIXED, "ValueError: one of two", "train.py:5 in <module>", ""),
        (COLORED, "ValueError: red", "", ""),
        (LONG_AGO, "ValueError: red", "", "step | step | step | step | step"),
        (f"{LONG_AGO}ERROR: no x\n", "ERROR: no x", "", "step | step | step | step"),
        (f"Check failed: no x\nStack trace:\n{STACK}", "Check failed: no x", "", ""),
        ("fatal: not a git repository\nbye\n", "fatal: not a git repository", "", "bye"),
        (
            f"{METRICS}bye",
            "",
            "",
            "error: 0.25 | Test Error: 3.1e-2 | Mean squared error = 2 | bye",
        ),
        ("x.cu:3:1: error: expected ;\n", "x.cu:3:1: error: expected ;", "", ""),
        (
            "run.sh: line 3: foo: command not found",
            "run.sh: line 3: foo: command not found",
            "",
            "",
        ),
        ("right\u202eleft\n", "", "", "right left"),
        ("", "", "", ""),
    ],
)
def test_the_reason_in_the_output_of_several_or_other_programs(
    output: str, error: str, where: str, last: str
) -> None:
    found = reason_of(output.encode(), Path("/s"))
    assert (found.error, found.where, found.last) == (error, where, last)


def test_both_ends_of_a_long_output_are_kept() -> None:
    ends = Ends()
    ends.add(b"fatal: no x\n")
    for _ in range(300):
        ends.add(b"y" * 9_999 + b"\n")
    lines = ends.lines()
    assert (lines[0], lines[-2][:1]) == ("fatal: no x", "y")
    assert sum(map(len, lines)) < 1 << 20
    assert Reason.of(lines, OwnFiles()).error == "fatal: no x"


@given(
    st.lists(
        st.sampled_from(
            [
                *RANKS.splitlines(),
                *MIXED.splitlines(),
                *COLORED.splitlines(),
                "│ ╭",
                "  | x",
                "",
                "x",
            ]
        )
        | st.text(max_size=20),
        max_size=60,
    ),
    st.integers(1, 2000),
)
def test_any_output_gives_one_bounded_line(lines: list[str], times: int) -> None:
    data = "\n".join(line * (times if len(line) < 3 else 1) for line in lines)
    found = reason_of(data.encode("utf-8", "replace"), Path("/s"))
    sentence = found.sentence("exit code 1", LOG)
    assert sentence.isprintable()
    assert LOG in sentence[:MAX_MESSAGE_CHARACTERS]


def test_a_sentence_begins_with_the_reason_and_names_the_log() -> None:
    late = Reason(
        "ValueError: late", "train.py:7 in main", "KeyError: 'x'", "bye", Hint("", "do this")
    )
    assert late.sentence("exit code 1", LOG) == (
        "ValueError: late (train.py:7 in main; exit code 1); also raised: KeyError: 'x'; whole"
        f" output: {LOG}; do this; last output: bye"
    )
    assert late.sentence("no score", is_crash=False) == (
        "no score; it printed ValueError: late (train.py:7 in main); also raised: KeyError: 'x';"
        " do this; last output: bye"
    )
    assert late.sentence("out of memory: ValueError: late", is_crash=False).startswith(
        "out of memory: ValueError: late (train.py:7 in main); also"
    )
    assert Reason(last="a | b").sentence("exit code 1", LOG) == (
        f"exit code 1: a | b; whole output: {LOG}"
    )
    assert Reason().sentence("exit code 1") == "exit code 1"
