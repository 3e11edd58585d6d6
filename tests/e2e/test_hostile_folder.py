"""Start the program inside a folder that somebody else wrote: none of its code runs outside the
sandbox, and no link in it leads a trial out."""

import os
import shlex
from pathlib import Path

import pytest

from agent.commands.record.serve import DRAW, drawing_environment
from agent.loggers.base import CampaignFacts
from agent.loggers.trackers import WandbLogger
from agent.session.places import say_if_new
from agent.settings.campaign import DEFAULT_MENU
from autoresearch.errors import SettingsError
from tests.support.campaigns import installed
from tests.support.coroutines import finished
from tests.support.own_trainers import Own
from tests.support.places import ROOT
from tests.trajectory.live.server import simulated, write_campaign
from trainer.executors.ray import connection
from trajectory.live.board import Drawer

PLANTED = ("agent", "autoresearch", "matplotlib", "ray", "ray/scripts", "sitecustomize")
CURIOUS = """
import os, pathlib
home = pathlib.Path({home!r})
try:
    print("stolen", (home / "id_ed25519").read_text())
except OSError:
    pass
try:
    (home / "authorized_keys").open("a").write("attacker")
except OSError:
    pass
print("val loss 1.0")
"""


def plant(folder: Path, ran: Path) -> None:
    """Write packages that record their import and the secrets they see."""
    for name in PLANTED:
        package = folder / name
        package.mkdir(parents=True, exist_ok=True)
        text = f"import os; open({str(ran)!r}, 'a').write(os.environ.get('OPENAI_API_KEY', '-'))\n"
        (package / "__init__.py").write_text(text)
        (package / "scripts.py").write_text(text)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a hostile folder with a key in the environment; return the file its code writes."""
    folder, ran = tmp_path / "clone", tmp_path / "ran"
    plant(folder, ran)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OPENAI_API_KEY", "precious-key")
    return ran


def test_a_report_is_drawn_without_the_code_of_the_current_directory(
    hostile: Path, tmp_path: Path
) -> None:
    campaign = write_campaign(tmp_path / "c", simulated(3)).parent
    page = finished(Drawer(DRAW, drawing_environment()).page(campaign, 3))
    assert b"<html" in page
    assert not hostile.exists()


def test_the_environment_of_a_drawing_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AUTORESEARCH_LLM_API_KEY", "AUTORESEARCH_NOTIFY_URLS"):
        monkeypatch.setenv(name, "precious")
    monkeypatch.setenv("H100_HOURLY_USD", "9.5")
    given = drawing_environment()
    assert given["H100_HOURLY_USD"] == "9.5"
    assert "precious" not in given.values()


def test_a_cluster_is_asked_without_the_code_of_the_current_directory(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        gcs_address = "127.0.0.1:1"

    class Ray:
        @staticmethod
        def get_runtime_context() -> Context:
            return Context()

    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    monkeypatch.setattr(connection, "load_ray", lambda: Ray)
    monkeypatch.setattr(connection, "_PROBE_S", 60)
    assert not connection.takes_anyone()
    assert not hostile.exists()


def test_no_program_is_started_in_the_folder_where_one_stands() -> None:
    """Every Python that the product starts comes from the two functions that start it safely."""
    exempt = {
        "autoresearch/code.py",
        "agent/session/own_trainer.py",
        "autoresearch/program.py",  # a command that a person may copy
        "agent/commands/record/show.py",  # the same
        "trainer/executors/command_probe.py",  # the command of a trial, in its sandbox
        "agent/session/dry_start.py",  # the check of a trial, in its sandbox
    }
    for room in ("autoresearch", "agent", "funnel", "trainer", "trajectory"):
        for path in (ROOT / room).rglob("*.py"):
            if str(path.relative_to(ROOT)) not in exempt:
                text = path.read_text("utf-8")
                assert '[sys.executable, "-' not in text, path
                assert '(sys.executable, "-' not in text, path


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["a link", "a link to a file", "a hard link below"])
def test_a_compile_cache_that_leads_elsewhere_is_refused(tmp_path: Path, planted: str) -> None:
    home = tmp_path / "victim"
    home.mkdir()
    (home / "id_ed25519").write_text("PRIVATE-DECOY\n")
    (home / "authorized_keys").write_text("friend\n")
    own = Own(tmp_path)
    (own.checkout / "train.py").write_text(CURIOUS.format(home=str(home)))
    own.campaign.mkdir(parents=True)
    compiled = own.campaign / "compiled"
    if planted == "a link":
        compiled.symlink_to(os.path.relpath(home, own.campaign))
    elif planted == "a link to a file":
        compiled.symlink_to(home / "authorized_keys")
    else:
        compiled.mkdir()
        os.link(home / "authorized_keys", compiled / "cached")
    ended = own.run("loop", "--menu=own.toml", "--iters=1", "--baseline-seeds=2", "--no-confirm")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert (home / "authorized_keys").read_text() == "friend\n"
    logs = "".join(path.read_text() for path in own.campaign.rglob("trainer.log"))
    assert "PRIVATE-DECOY" not in logs + ended.stdout + ended.stderr


@pytest.mark.parametrize("line", ["base_url = http://evil.example", "https_proxy: http://evil"])
def test_the_settings_of_the_current_directory_send_no_key_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text(f"[default]\nproject = own\n{line}\n")
    facts = CampaignFacts(tmp_path, "id", {})
    with pytest.raises(SettingsError):
        WandbLogger("project", facts)


@pytest.mark.parametrize(
    "words", [("status",), ("top",), ("propose", "lr=0.002"), ("export", "--to=csv"), ("diff",)]
)
def test_the_name_of_a_folder_is_not_obeyed_by_the_terminal(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    directory = tmp_path / "runs" / "a\x1b]0;title\x07\x1b[31m"
    write_campaign(directory, simulated(3))
    more = (directory, directory) if words == ("diff",) else ()
    ended = installed(*words, *more, home=tmp_path)
    assert ended.returncode in {0, 1, 3}
    assert "\x1b" not in ended.stdout + ended.stderr


def test_an_honest_folder_named_like_a_package_of_ours_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text("")
    campaign = write_campaign(tmp_path / "c", simulated(3)).parent
    monkeypatch.chdir(tmp_path)
    assert finished(Drawer(DRAW, drawing_environment()).page(campaign, 3))


def test_a_command_to_copy_takes_the_name_of_a_folder_as_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = Path("runs", "a; touch $(b)")
    write_campaign(directory, simulated(3))
    say_if_new(Path("runs", DEFAULT_MENU))
    assert shlex.split(capsys.readouterr().err)[-1] == str(directory)
