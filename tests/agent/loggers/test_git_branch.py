import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from agent.loggers.git_branch import GitBranch
from agent.search.campaign import Campaign
from autoresearch.errors import CampaignError
from tests.support.campaigns import Toy
from tests.support.own_trainers import Own
from trainer.machine.environment import allowed_environment

NAME = 'tr "\x1b\té.py'
SCRIPT = """
import random

LR = 0.5  # the rate
SEED = 0
random.seed(SEED)
print(f"loss {1 + (LR - 0.1) ** 2 + random.gauss(0, 1e-4)}")
"""
MENU = """
name = "own"
[trainer]
command = ["{python}", "tr \\"\\u001b\\té.py"]
set_by = "edit"
edits = { SEED = "{seed}" }
score = { pattern = 'loss ([-+0-9.eE]+)' }
unit = "points"
[knobs.LR]
type = "float"
low = 0.001
high = 1.0
default = 0.5
"""


def git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=a person", "-c", "user.email=person@localhost")
    return subprocess.run(
        ["git", *identity, *words], cwd=repository, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def own(tmp_path: Path) -> Own:
    """Return a repository with a script in a folder, a staged change and a changed file."""
    own = Own(tmp_path)
    (own.checkout / NAME).write_text(SCRIPT)
    (own.checkout / "own.toml").write_text(MENU)
    (own.checkout / "notes.md").write_text("first\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "checkout")
    git(tmp_path, "commit", "-q", "-m", "begin")
    (own.checkout / "notes.md").write_text("staged\n")
    git(tmp_path, "add", "checkout/notes.md")
    (own.checkout / "notes.md").write_text("changed\n")
    hook = tmp_path / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    return own


@pytest.mark.slow
def test_each_keep_becomes_a_commit_and_nothing_else_changes(own: Own) -> None:
    before = (git(own.home, "rev-parse", "HEAD"), (own.home / ".git" / "index").read_bytes())
    said = own.loop(10, "--git", "--proposer=random", "--seed=1")
    assert "1 uncommitted" in said
    after = (git(own.home, "rev-parse", "HEAD"), (own.home / ".git" / "index").read_bytes())
    assert after == before
    assert (own.checkout / NAME).read_text() == SCRIPT
    assert (own.checkout / "notes.md").read_text() == "changed\n"
    assert not (own.home / "hooked").exists()
    kept = [row for row in own.rows("iteration") if row["decision"]["action"] == "keep"]
    assert kept
    (branch,) = git(
        own.home, "for-each-ref", "--format=%(refname)", "refs/heads/autoresearch"
    ).split()
    commits = git(own.home, "rev-list", "--reverse", f"main..{branch}").split()
    assert len(commits) == len(kept)
    for commit, row in zip(commits, kept, strict=True):
        script = git(own.home, "show", f"{commit}:checkout/{NAME}")
        values = row["config"]["values"]
        seed = row["trials"][0]["seed"]
        expected = SCRIPT.replace("LR = 0.5", f"LR = {values['LR']!r}")
        assert script == expected.replace("SEED = 0", f"SEED = {seed}")
        about = json.loads(git(own.home, "show", f"{commit}:checkout/autoresearch.json"))
        assert (about["iteration"], about["config"]) == (row["iter"], values)
        message = git(own.home, "log", "-1", "--format=%B", commit)
        decision = row["decision"]
        assert message.startswith(f"Iteration {row['iter']}: ")
        assert f"{decision['delta']:+.4f}" in message
        assert f"{decision['stderr']:.4f}" in message
        changed = git(own.home, "diff", "-z", "--name-only", f"{commit}~", commit).split("\0")
        assert set(changed) <= {f"checkout/{NAME}", "checkout/autoresearch.json", ""}
    found = own.rows("confirmed")[-1]["found"]["configs"][0]
    tagged = git(own.home, "rev-list", "-1", f"{branch.removeprefix('refs/heads/')}-confirmed")
    hashes = [row["config_hash"] for row in kept]
    assert tagged.strip() == commits[hashes.index(found["config_hash"])]


@pytest.mark.slow
def test_git_is_refused_where_it_cannot_commit(own: Own, tmp_path: Path) -> None:
    toy = Toy(tmp_path / "toy")
    refused = toy.run(*toy.arguments(1, "--git")[1:])
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert not toy.campaign.exists(), "nothing was begun"
    (own.home / ".git").rename(own.home / "elsewhere")
    said = own.loop(1, "--git", code=1)
    assert said.splitlines()[-1].startswith("error: ")


CONFIG = """
[core]
    fsmonitor = {run}
    hooksPath = {hooks}
    sshCommand = {run}
    pager = {run}
[filter "evil"]
    clean = {run}
    smudge = {run}
    required = true
[filter "odd=name.of it"]
    process = {run}
[gpg]
    program = {run}
[log]
    showSignature = true
[diff]
    external = {run}
"""


@pytest.fixture
def branch_of(own: Own, tmp_path: Path) -> Callable[[], GitBranch]:
    """Return a function that opens the branch of a repository whose configuration is hostile."""
    ran = tmp_path / "ran"
    program = tmp_path / "run.sh"
    program.write_text(f'#!/bin/sh\necho "$OPENAI_API_KEY" >> {ran}\ncat\n')
    program.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    shutil.copy(program, tmp_path / "hooks" / "reference-transaction")
    with (tmp_path / ".git" / "config").open("a") as config:
        config.write(CONFIG.format(run=program, hooks=tmp_path / "hooks"))
    (own.checkout / ".gitattributes").write_text('notes.md filter=evil\n*.toml "filter=odd"\n')
    (tmp_path / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    (own.checkout / "own.toml").write_text(MENU + "\n")

    def opened() -> GitBranch:
        script = SimpleNamespace(directory=str(own.checkout))
        row = SimpleNamespace(script=script, id="0123456789abcdef")
        campaign = SimpleNamespace(row=row, command=object(), directory=own.campaign)
        return GitBranch(cast(Campaign, campaign))

    return opened


def test_no_program_of_the_repositorys_configuration_runs(
    branch_of: Callable[[], GitBranch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "precious")
    branch = branch_of()
    assert "uncommitted" in branch.note
    parent = branch._git("rev-parse", "HEAD").strip()
    text = f"commit {branch._ref}\ncommitter a <b@c> now\ndata 1\nm\nfrom {parent}\n"
    branch._git("fast-import", "--quiet", "--date-format=now", text=text)
    branch._git("log", "-1", "--format=%H", branch._ref)
    branch._git("update-ref", f"refs/tags/{branch.branch}-confirmed", parent)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["refs/heads/autoresearch", "objects/ff", "logs", "refs/tags"])
def test_a_repository_whose_folders_lead_elsewhere_is_refused(
    branch_of: Callable[[], GitBranch], tmp_path: Path, name: str
) -> None:
    place = tmp_path / ".git" / name
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(place, ignore_errors=True)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CampaignError):
        branch_of()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("how", ["file", "commondir"])
def test_a_checkout_that_names_another_repository_is_refused(
    branch_of: Callable[[], GitBranch], own: Own, tmp_path: Path, how: str
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", ".", str(other))
    if how == "file":
        (own.checkout / ".git").write_text(f"gitdir: {other}/.git\n")
    else:
        git(tmp_path, "clone", "-q", ".", "stolen")
        (tmp_path / "stolen/.git").rename(own.checkout / ".git")
        (own.checkout / ".git/commondir").write_text(f"{other}/.git\n")
    with pytest.raises(CampaignError):
        branch_of()
    assert "autoresearch" not in git(other, "for-each-ref")


@pytest.mark.parametrize("how", ["worktree", "submodule"])
def test_a_worktree_and_a_submodule_are_checkouts_of_their_own(
    branch_of: Callable[[], GitBranch], own: Own, tmp_path: Path, how: str
) -> None:
    safe = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.file.allow=always")
    shutil.rmtree(own.checkout)
    if how == "worktree":
        git(tmp_path, *safe, "worktree", "add", "-q", "-b", "side", str(own.checkout))
    else:
        outer = tmp_path / "outer"
        git(tmp_path, *safe, "init", "-q", str(outer))
        git(outer, *safe, "submodule", "add", "-q", str(tmp_path), "inner")
        (outer / "inner").rename(own.checkout)
        # as git keeps it, but for the place
        modules = outer / ".git/modules/inner"
        (own.checkout / ".git").write_text(f"gitdir: {modules}\n")
        git(
            tmp_path,
            "config",
            "--file",
            str(modules / "config"),
            "core.worktree",
            str(own.checkout),
        )
    assert branch_of().branch


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_name_in_the_way_is_said_at_the_start(
    branch_of: Callable[[], GitBranch], tmp_path: Path, kind: str
) -> None:
    git(tmp_path, "-c", "core.hooksPath=/dev/null", kind, "autoresearch")
    with pytest.raises(CampaignError) as caught:
        branch_of()
    assert f"the {kind} autoresearch exists" in str(caught.value)


def test_dubious_ownership_is_said_with_its_remedy(
    branch_of: Callable[[], GitBranch], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "agent.loggers.git_branch.allowed_environment",
        lambda **more: allowed_environment(**more) | {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"},
    )
    with pytest.raises(CampaignError) as caught:
        branch_of()
    assert "detected dubious ownership" in str(caught.value)
    assert f"git config --global --add safe.directory {tmp_path}" in str(caught.value)
