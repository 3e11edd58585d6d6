"""Run an agent's command on each task of evals.json in an empty folder, and grade what it left.

    python evals/run.py --agent 'claude -p --permission-mode acceptEdits --allowedTools Bash'

The prompt goes to the agent's standard input. Its folder holds the task's files and, unless
--without-skills is given, the skills, where common agents look for them. A task passes if all its
checks do:

- ``file``, ``matches``: the file exists, and its text matches the pattern;
- ``unchanged``: the file is as it was given;
- ``command``, ``exit``, ``prints``: this command ends with that code, and its output matches.

Exit code 1: a task failed. No agent program was at hand when this was written: not measured.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SKILLS = (".claude/skills", ".agents/skills", ".gemini/skills")


def main() -> int:
    """Grade every task, print a line for each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", required=True, help="command that reads a prompt and works")
    parser.add_argument("--tasks", type=Path, default=HERE / "evals.json")
    parser.add_argument("--only", action="append", help="id of a task; repeatable")
    parser.add_argument("--limit-s", type=float, default=900, help="time of the agent per task")
    parser.add_argument("--without-skills", action="store_true")
    asked = parser.parse_args()
    tasks = json.loads(asked.tasks.read_text("utf-8"))["evals"]
    chosen = [task for task in tasks if not asked.only or task["id"] in asked.only]
    failed = 0
    for task in chosen:
        with tempfile.TemporaryDirectory(prefix="eval-") as folder:
            failures = graded(task, Path(folder), asked)
        print(f"{'FAIL' if failures else 'pass'}  {task['id']}  {'; '.join(failures)}", flush=True)
        failed += bool(failures)
    print(f"{len(chosen) - failed} of {len(chosen)} tasks passed")
    return 1 if failed else 0


def graded(task: dict[str, Any], folder: Path, asked: argparse.Namespace) -> list[str]:
    """Return what the agent did not do, in a folder made for it."""
    for name in task.get("files", ()):
        shutil.copy(asked.tasks.parent / name, folder / name)
    for command in task.get("setup", ()):
        code, output = ran(command, folder, limit_s=900)
        if code:
            return [f"its setup failed: {command}: {output[-200:]}"]
    if not asked.without_skills:
        for place in SKILLS:
            shutil.copytree(HERE.parent / "skills", folder / place)
    code, output = ran(asked.agent, folder, task["prompt"], limit_s=asked.limit_s)
    failures = [f"the agent ended with {code}: {output[-200:]!r}"] if code else []
    given = asked.tasks.parent
    return failures + [f"{check}" for check in task["checks"] if not holds(check, folder, given)]


def holds(check: dict[str, Any], folder: Path, given: Path) -> bool:
    """Return whether one check holds."""
    if "unchanged" in check:
        name = check["unchanged"]
        path = folder / name
        return path.is_file() and path.read_bytes() == (given / name).read_bytes()
    if "file" in check:
        path = folder / check["file"]
        text = path.read_text("utf-8", "replace") if path.is_file() else None
        return text is not None and re.search(check.get("matches", ""), text) is not None
    code, output = ran(check["command"], folder, limit_s=300)
    return code == check.get("exit", 0) and re.search(check.get("prints", ""), output) is not None


def ran(command: str, folder: Path, question: str = "", *, limit_s: float) -> tuple[int, str]:
    """Return a command's exit code and output; its process group ends with it."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.communicate(question.encode(), timeout=limit_s)
        except subprocess.TimeoutExpired:
            output.write(f"took over {limit_s:g} s".encode())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return process.returncode, output.read().decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
