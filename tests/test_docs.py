"""Check that the documentation is current: its command reference, its links, and its commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.cli
import typer.main
from typer.testing import CliRunner

from agent.cli import app
from tests.support.browser import chromium
from tests.support.places import ROOT
from tests.support.programs import finished

SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "RESULTS.md", *SKILLS]
)


def page_name(page: Path) -> str:
    return page.parent.name if page in SKILLS else page.name


COMMANDS = typer.main.get_command(app)


def test_the_command_reference_is_what_the_commands_say(tmp_path: Path) -> None:
    generated = tmp_path / "commands.md"
    words = ["agent.cli", "utils", "docs", "--name", "autoresearch", "--title", "Commands"]
    done = CliRunner().invoke(typer.cli.app, [*words, "--output", str(generated)])
    assert done.exit_code == 0, done.output
    kept = ROOT / "docs" / "commands.md"
    subprocess.run(["sed", "-i", "-f", ROOT / "docs" / "reference.sed", generated], check=True)
    assert kept.read_text("utf-8") == generated.read_text("utf-8"), "run: make reference"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """The build checks links between pages, anchors included, and the order in mkdocs.yml."""
    words = ("build", "--strict", "--site-dir", tmp_path / "site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = finished(sys.executable, "-m", "mkdocs", *words, cwd=ROOT, env=environment)
    assert built.returncode == 0, built.stderr


SHOWN = re.compile(
    r"^(?: {4,}|\$ )(?:\$ )?"
    r"(?:(?:\S*/)?|docker (?:compose )?run .*?|docker compose exec autoresearch )"
    r"autoresearch ([a-z][a-z-]*\b.*)"
)


def shown_commands(page: Path) -> list[list[str]]:
    """Return the words after ``autoresearch`` in indented blocks."""
    lines = re.sub(r"\\\n\s+", "", page.read_text("utf-8")).splitlines()
    matches = (SHOWN.match(line) for line in lines)
    return [shlex.split(m[1].split(" < ")[0], comments=True) for m in matches if m]


WRITTEN = [page for page in PAGES if page.name != "commands.md"]


@pytest.mark.parametrize("page", WRITTEN, ids=page_name)
def test_the_commands_shown_exist_with_their_options(page: Path) -> None:
    for words in shown_commands(page):
        command = COMMANDS
        rest = words[: words.index("--")] if "--" in words else list(words)
        while rest and hasattr(command, "commands") and rest[0] in command.commands:
            command = command.get_command(typer.Context(command), rest.pop(0))
        alone = getattr(command, "invoke_without_command", True)
        assert alone, f"{page.name}: autoresearch {' '.join(words)} needs a command"
        known = {
            name for option in command.params for name in (*option.opts, *option.secondary_opts)
        }
        for word in rest:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{page.name}: {' '.join(words)}: {word}"


@pytest.mark.slow
def test_the_night_that_is_shown_says_what_its_journal_says(tmp_path: Path) -> None:
    shown = ROOT / "docs" / "night"
    shutil.copy(shown / "trajectory.jsonl", tmp_path)
    command = Path(sys.executable).with_name("autoresearch")
    told = subprocess.run(
        [command, "report", "--campaign", tmp_path, "--json"], check=True, capture_output=True
    )
    summary = json.loads(told.stdout)["summary"]
    assert summary["iterations"] == 100
    text = (shown / "README.md").read_text("utf-8")
    assert f"{summary['kept']} of {summary['iterations']} proposals were kept" in text
    page = (shown / "report.html").read_text("utf-8")
    for known in (summary["campaign"], f"{summary['best']['objective']:.4f}"):
        assert known in page
    assert summary["headline"]["verdict"] == "confirmed"
    confirmed, *ends = (-summary["headline"][name] for name in ("delta", "hi", "lo"))
    assert f"{confirmed:.3f} ({ends[0]:.3f} to {ends[1]:.3f})" in text


def test_the_report_of_the_night_opens_in_a_browser() -> None:
    with chromium() as browser:
        page, troubles = browser.new_page(), list[str]()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text))
        page.goto((ROOT / "docs" / "night" / "report.html").as_uri())
        assert page.locator("h1").inner_text()
        assert page.locator("svg").count() >= 2
        assert not troubles


def test_the_page_on_the_articles_stays_short() -> None:
    assert len((ROOT / "docs" / "articles.md").read_text("utf-8").split()) <= 700
