"""Check the skills by the Agent Skills specification (agentskills.io), the plugins' manifests, and
that a script can grade every task of evals.json."""

import json
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.support.places import ROOT
from tests.support.programs import finished
from tests.test_docs import SKILLS, shown_commands

TASKS = json.loads((ROOT / "evals" / "evals.json").read_text("utf-8"))["evals"]


@pytest.mark.parametrize("page", SKILLS, ids=lambda page: page.parent.name)
def test_a_skill_follows_the_specification(page: Path) -> None:
    text = page.read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    facts = yaml.safe_load(front)
    assert facts.keys() <= {"name", "description", "license", "compatibility", "metadata"}
    assert facts["name"] == page.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", facts["name"])
    assert len(facts["name"]) <= 64
    assert 0 < len(facts["description"]) <= 1024
    assert "Use when" in facts["description"], "it says when"
    assert len(facts["compatibility"]) <= 500
    assert len(text.splitlines()) < 300
    headings = re.findall(r"^## (.+)", body, re.MULTILINE)
    assert headings[0] == "Gotchas"
    assert "Exit codes" in headings
    assert len(shown_commands(page)) >= 4, "test_docs checks them"


def test_there_are_three_skills_and_each_has_tasks() -> None:
    assert len(SKILLS) == 3
    assert {task["skill"] for task in TASKS} == {page.parent.name for page in SKILLS}
    assert len({task["id"] for task in TASKS}) == len(TASKS) >= 10
    assert SOLUTIONS.keys() == {task["id"] for task in TASKS}


def test_the_manifests_are_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in (".claude-plugin/plugin.json", "gemini-extension.json"):
        manifest = json.loads((ROOT / name).read_text("utf-8"))
        assert manifest["version"] == version, name
        assert manifest["name"] == "autoresearch"
    market = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text("utf-8"))
    assert market["owner"]["name"]
    (plugin,) = market["plugins"]
    assert (ROOT / plugin["source"] / "skills").is_dir()
    assert plugin["name"] == manifest["name"]


AGENT = """
import json, subprocess, sys
from pathlib import Path
lines = json.loads(Path(sys.argv[1]).read_text())[sys.stdin.read()]
for line in lines:
    subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL)
"""
"""A stand-in for an agent, which knows what to run for each prompt."""


def graded(folder: Path, answers: dict[str, list[str]], *words: str) -> CompletedProcess[str]:
    """Run the harness with a stand-in agent."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "answers.json").write_text(json.dumps(answers))
    agent = shlex.join([sys.executable, str(folder / "agent.py"), str(folder / "answers.json")])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = (sys.executable, str(ROOT / "evals" / "run.py"), "--agent", agent, *words)
    return finished(*command, cwd=folder, env={**os.environ, "PATH": path})


def test_the_harness_passes_who_solves_a_task_and_fails_who_does_not(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("as it was")
    kept = {"unchanged": "given.txt"}
    written = {"file": "answer.txt", "matches": "^42$"}
    shown = {"command": "cat answer.txt missing.txt", "exit": 1, "prints": "42"}
    skilled = {"file": ".claude/skills/run-a-night/SKILL.md"}
    tasks = {
        "solved": [kept, written, shown, skilled],
        "wrong": [kept, written],
        "destroyed": [kept],
        "idle": [shown],
    }
    evals = [
        {"id": name, "prompt": name, "files": ["given.txt"], "checks": checks}
        for name, checks in tasks.items()
    ]
    (tmp_path / "tasks.json").write_text(json.dumps({"evals": evals}))
    answers = {
        "solved": ["echo 42 > answer.txt"],
        "wrong": ["echo 41 > answer.txt"],
        "destroyed": ["echo changed > given.txt"],
        "idle": [],
    }
    words = ("--tasks", str(tmp_path / "tasks.json"))
    done = graded(tmp_path, answers, *words)
    assert done.returncode == 1, done.stderr
    *lines, total = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["pass" if name == "solved" else "FAIL", name] for name in tasks
    ]
    assert total.startswith("1 of 4")
    done = graded(tmp_path, answers, *words, "--only", "solved")
    assert done.returncode == 0, done.stdout
    done = graded(tmp_path, answers, *words, "--only", "solved", "--without-skills")
    assert done.returncode == 1
    hung = {"solved": [*answers["solved"], "sleep 3600"]}
    done = graded(tmp_path, hung, *words, "--only", "solved", "--limit-s", "0.5")
    assert done.returncode == 1


LOOP = "autoresearch loop --menu menu.toml --campaign runs/toy --no-confirm --iters"
SOLUTIONS = {
    "draft-a-menu": ["autoresearch menu from-script train.py -o menu.toml"],
    "narrow-a-knob": [
        'sed -i \'s/low = 0.005, high = 0.5, scale = "log", default = 0.05/'
        'low = 0.1, high = 0.4, scale = "log", default = 0.2/\' menu.toml'
    ],
    "freeze-a-knob": ["sed -i -e '/^l2 = /d' -e 's/--l2={l2}/--l2=0.1/' menu.toml"],
    "audit-a-score": ["autoresearch check score --menu menu.toml; echo $? > code.txt"],
    "run-four-iterations": [f"{LOOP} 4"],
    "resume-to-six": [f"{LOOP} 6"],
    "do-not-raise-the-budget": [f"{LOOP} 6"],
    "claimed-or-confirmed": [
        "autoresearch status runs/toy --json > status.json",
        f'{sys.executable} -c \'import json; print(json.load(open("status.json"))[0]["verdict"])\''
        " > answer.txt",
    ],
    "propose-an-idea": [
        "autoresearch propose lr=0.4 --reason warmer --author agent --campaign runs/toy"
    ],
    "an-idea-beyond-the-range": [
        "autoresearch propose lr=50 --reason hotter --campaign runs/toy; echo $? > code.txt"
    ],
    "is-anything-running": ["autoresearch status runs; echo $? > code.txt"],
    "take-the-winner-home": ["autoresearch show --campaign runs/toy --as json > best.json"],
    "pause-a-night": ["touch runs/toy/pause"],
    "write-the-report": ["autoresearch report --campaign runs/toy"],
}
"""Commands, as the skills have them, that solve each task."""


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task["id"])
def test_the_skills_commands_solve_each_task_and_doing_nothing_does_not(
    task: dict[str, object], tmp_path: Path
) -> None:
    name, prompt = str(task["id"]), str(task["prompt"])
    done = graded(tmp_path, {prompt: SOLUTIONS[name]}, "--only", name)
    assert done.returncode == 0, done.stdout + done.stderr
    if "setup" not in task:
        idle = graded(tmp_path, {prompt: []}, "--only", name)
        assert idle.returncode == 1, idle.stdout
