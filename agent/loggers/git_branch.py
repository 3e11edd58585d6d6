"""Commit each kept config to a branch of the training script's repository.

It uses ``git fast-import``, so that neither the work tree nor the user's index changes. Each commit
holds the script with its constants rewritten, if the menu rewrites them, and ``autoresearch.json``
with the config and the filled-in command.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from agent.loggers.base import RunEvent
from agent.menu.proxy_menu import ProxyMenu
from agent.search.campaign import Campaign
from autoresearch.errors import CampaignError
from autoresearch.safe_text import plain
from autoresearch.words import brief
from trainer.command.filling import filled
from trainer.machine.environment import allowed_environment
from trainer.script.editing import edited
from trajectory.confirmed import Confirmed
from trajectory.rows import IterationRow

LIMIT_S = 60
CONFIG_FILE = "autoresearch.json"
_NAME, _EMAIL = "autoresearch", "autoresearch@localhost"
_SAFE = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "gc.auto": "0",
    "log.showSignature": "false",
    "protocol.allow": "never",  # a partial clone would fetch what it lacks
}
"""Settings under which git starts none of the programs that a repository's configuration may
name, besides its filters."""
_FILTER = re.compile(r"filter\.(.+)\.[^.]+", re.DOTALL)
_NO_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}
_WRITTEN = ("", "objects", "objects/pack", "refs", "refs/heads", "refs/tags", "logs", "logs/refs")
_BRANCHES = tuple(f"{folder}/autoresearch" for folder in ("refs/heads", "refs/tags"))


def refuse_built_in(menu: ProxyMenu) -> None:
    """
    :raises CampaignError: if the menu trains no script, whose changes could be committed.
    """
    if menu.trainer is None:
        raise CampaignError(
            "--git commits the changes of a script, and this campaign trains the built-in "
            "model; leave it out, or search a menu with a [trainer]"
        )


class GitBranch:
    """Branch ``autoresearch/NAME-ID`` of the repository that holds a campaign's script."""

    def __init__(self, campaign: Campaign) -> None:
        """Find the repository.

        :raises CampaignError: if git cannot write the script's repository, or its branch is checked
            out.
        """
        row = campaign.row
        assert row.script is not None, "a campaign that trains a script"
        assert campaign.command is not None, "a campaign that trains a script"
        self._campaign, self._command = campaign, campaign.command
        self._directory = Path(row.script.directory)
        self._settings = dict(_SAFE)
        listed = self._git("config", "--list", "--name-only", "-z").split("\0")
        for found in filter(None, map(_FILTER.fullmatch, listed)):
            for key, value in _NO_FILTER.items():
                self._settings[f"filter.{found[1]}.{key}"] = value
        self._refuse_links()
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", campaign.directory.resolve().name).strip("-")
        self.branch = f"autoresearch/{name or 'campaign'}-{row.id[:8]}"
        self._ref = f"refs/heads/{self.branch}"
        self._refuse_taken_name()
        self._prefix = self._git("rev-parse", "--show-prefix").strip()
        self._git("rev-parse", "--verify", "HEAD^{commit}")
        if f"branch {self._ref}\n" in self._git("worktree", "list", "--porcelain") + "\n":
            raise CampaignError(
                f"the branch {self.branch} is checked out, and --git never changes a work tree; "
                "check out another branch"
            )
        tracked = ("--untracked-files=no", "--ignore-submodules=all")
        changed = self._git("status", "--porcelain", *tracked, "--", ".").splitlines()
        self.note = (
            f"git       keeps are committed to {self.branch}; the work tree is not touched"
            + (
                f"; it has {len(changed)} uncommitted changes here, which the commits lack except "
                "in the script that is rewritten"
                if changed
                else ""
            )
        )

    def _refuse_taken_name(self) -> None:
        """
        :raises CampaignError: if a branch or tag named ``autoresearch`` exists: git keeps each name
            as a file or as a folder, not as both.
        """
        first = self.branch.partition("/")[0]
        taken = {f"refs/heads/{first}": "branch", f"refs/tags/{first}": "tag"}
        for ref in self._git("for-each-ref", "--format=%(refname)", *taken).split():
            if ref in taken:
                raise CampaignError(
                    f"the {taken[ref]} {first} exists, so git cannot make {self.branch}; rename "
                    f"it, or leave out --git"
                )

    def log(self, event: RunEvent) -> None:
        """Commit a kept iteration; see :class:`~agent.loggers.base.RunLogger`."""
        if not isinstance(event, IterationRow) or event.decision.action != "keep":
            return
        files = self._files(event)
        tip = self._git("for-each-ref", "--format=%(objectname)", self._ref).strip()
        parent = tip or self._git("rev-parse", "HEAD").strip()
        lines = [f"commit {self._ref}", f"committer {_NAME} <{_EMAIL}> now"]
        lines += [_data(self._message(event)), f"from {parent}"]
        for path, text in files.items():
            mode = self._git("ls-tree", "--full-tree", parent, "--", path)[:6] or "100644"
            quoted = "".join(f"\\{byte:03o}" for byte in os.fsencode(path))
            lines += [f'M {mode} inline "{quoted}"', _data(text)]
        self._git("fast-import", "--quiet", "--date-format=now", text="\n".join([*lines, ""]))

    def close(self) -> None:
        """Do nothing: every commit is complete."""

    def tag(self, found: Confirmed | None) -> str | None:
        """Tag the commit of the confirmed config, and return a line about it; None if there is
        nothing to tag. A failure of git is such a line, too: the campaign's results are unaffected.
        """
        if found is None or not found.chosen.stands:
            return None
        asked = f"Config: {found.chosen.config_hash}"
        log = ("log", "-1", "--format=%H", "--fixed-strings", f"--grep={asked}", self._ref)
        tag = f"{self.branch}-confirmed"
        try:
            if not self._git("for-each-ref", self._ref):
                return None
            commit = self._git(*log).strip()
            if commit:
                self._git("update-ref", f"refs/tags/{tag}", commit)
        except CampaignError as error:
            return f"git       the confirmed commit has no tag: {error}"
        if not commit:
            return f"git       the confirmed config has no commit on {self.branch}: it was not kept"
        return f"git       {commit[:12]} is tagged {tag}"

    def _files(self, row: IterationRow) -> dict[str, str]:
        """Return the text of each file of the commit, by its path in the repository."""
        config = row.config
        assert config is not None  # a kept iteration trained one
        spec = self._campaign.trial_spec(config, row.trials[0].seed)
        filling = filled(spec, self._command, Path("out"), spec.threads or 1)
        said = {"campaign": self._campaign.row.id, "iteration": row.iter, "config": config.said}
        said |= {"command": filling.argv, "environment": filling.env}
        files = {self._prefix + CONFIG_FILE: json.dumps(said, indent=1) + "\n"}
        if self._command.edited is not None:
            source = (self._directory / self._command.edited).read_text("utf-8-sig")
            text = edited(source, filling.edits)
            files[self._prefix + self._command.edited] = text
        return files

    def _message(self, row: IterationRow) -> str:
        decision, measure = row.decision, self._campaign.row.measured_in
        changes = row.proposal.changes if row.proposal else {}
        shown = {name: brief(name, value) for name, value in changes.items()}
        changed = ", ".join(f"{name} = {value}" for name, value in shown.items())
        lines = [f"Iteration {row.iter}: {plain(changed)}"[:200], ""]
        if decision.delta is not None:
            stderr = "unknown" if decision.stderr is None else measure.size(decision.stderr)
            lines += [
                f"Delta: {measure.signed(decision.delta)} {measure.short} ({measure.better})",
                f"Standard error: {stderr} ({decision.pairs} common seeds)",
            ]
        if row.proposal and row.proposal.reason:
            lines.append(f"Reason: {plain(row.proposal.reason)[:1000]}")
        lines += [f"Campaign: {self._campaign.row.id}", f"Config: {row.config_hash}"]
        return "\n".join(lines) + "\n"

    def _refuse_links(self) -> None:
        """
        :raises CampaignError: if the repository's folders lead elsewhere, where git would write.
        """
        asked = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
        found = self._git("rev-parse", *asked).splitlines()
        top, folder, common = (self._directory / one for one in found)
        if not self._is_of(top, folder, common.resolve()):
            raise CampaignError(
                f"{top / '.git'} names the repository {folder}, which names no checkout there, so "
                "git would write somewhere else; leave out --git"
            )
        for of in {folder, common}:
            below = {of / name for name in (*_WRITTEN, *_BRANCHES)}
            below |= {entry for name in ("objects", "refs") for entry in (of / name).glob("*")}
            if led := sorted(path for path in below if path.is_symlink()):
                raise CampaignError(
                    f"{led[0]} is a link, so git would write outside the repository; replace it by "
                    "what it links to, or leave out --git"
                )

    def _is_of(self, top: Path, folder: Path, common: Path) -> bool:
        """Return whether a repository is the checkout's own, or names it as a worktree or a
        submodule; a checkout can name any repository."""
        if common != folder:
            listed = folder / "gitdir"
            is_listed = folder.parent == common / "worktrees" and listed.is_file()
            return is_listed and Path(listed.read_text("utf-8").strip()) == top / ".git"
        if folder == top / ".git":
            return True
        named = self._git("config", "--default", "", "--get", "core.worktree").strip()
        is_inside = self._directory.resolve().is_relative_to(top)
        return is_inside and bool(named) and (folder / named).resolve() == top

    def _git(self, *words: str, text: str = "") -> str:
        """Run git in the script's directory and return its output.

        :raises CampaignError: if it fails or takes longer than a minute.
        """
        known = allowed_environment(also=("HOME", "XDG_CONFIG_HOME"))
        known |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        known |= {"GIT_COMMITTER_NAME": _NAME, "GIT_COMMITTER_EMAIL": _EMAIL}
        known |= {"GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(len(self._settings))}
        for number, (key, value) in enumerate(self._settings.items()):  # -c cannot give every key
            known |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        try:
            done = subprocess.run(
                ["git", *words],
                cwd=self._directory,
                env=known,
                input=text.encode("utf-8", "replace"),
                capture_output=True,
                check=True,
                timeout=LIMIT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            clauses = said.decode("utf-8", "replace").strip().splitlines()
            why, advice = _cause(clauses), "make it a git repository with a commit"
            if "dubious ownership" in why:
                advice = f"if you trust its owner, run: {plain(clauses[-1].strip())[:300]}"
            raise CampaignError(
                f"git cannot record keeps for {self._directory} ({plain(why)[:200]}); {advice}, or "
                "leave out --git"
            ) from error
        return done.stdout.decode("utf-8", "replace")


def _cause(clauses: list[str]) -> str:
    """Return the line of git's message that names the cause.

    Advice follows the line that begins with ``fatal:``, and the last line of a failed fast-import
    names its report.
    """
    fatal = [one for one in clauses if one.startswith("fatal:")]
    causes = [one for one in clauses if not one.startswith("fast-import:")]
    return (fatal or causes or clauses)[-1]


def _data(text: str) -> str:
    """Return a text as git's fast-import reads it."""
    return f"data {len(text.encode('utf-8', 'replace'))}\n{text}"
