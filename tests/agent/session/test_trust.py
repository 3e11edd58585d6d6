"""A campaign that somebody else began reaches out of its directory only once its user agrees."""

import shutil
import socket
from pathlib import Path

import pytest

from agent.session import trust
from agent.session.campaign_run import chosen_settings
from autoresearch.errors import CampaignError
from tests.support.campaigns import Toy
from tests.support.own_trainers import Own
from tests.support.simulated.commands import SimulatedToy


def test_a_foreign_executor_is_not_connected_to_unasked(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path)
    assert toy.loop(1).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        where = f"ray:127.0.0.1:{listener.getsockname()[1]}"
        settings = toy.campaign / "campaign.toml"
        settings.write_text(settings.read_text() + f'executor = "{where}"\n')
        for words in (("loop", "--iters=2"), ("confirm",), ("stress",), ("calibrate",)):
            refused = Toy.run(toy, *words, f"--campaign={toy.campaign}")
            assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
        with pytest.raises(TimeoutError):
            listener.accept()


@pytest.mark.slow
def test_ones_own_script_runs_on_and_a_copied_campaign_asks(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.loop(1, "--no-confirm")
    own.loop(2, "--no-confirm")
    foreign = tmp_path / "sent"
    shutil.copytree(own.campaign, foreign)
    again = ("loop", "--iters=3", "--no-confirm", f"--campaign={foreign}")
    refused = own.run(*again)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert own.run(*again, "--trust").returncode == 0
    assert own.run(*again[:1], "--iters=4", *again[2:]).returncode == 0


@pytest.mark.parametrize(
    "line",
    ['executor = "ray:10.0.0.1:6379"', "allow_unsandboxed = true", 'corpus = "hf:some/text"'],
)
def test_what_reaches_out_needs_a_mark_or_the_command_line(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = SimulatedToy(tmp_path)
    assert toy.loop(1).returncode == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name, _, value = line.partition(" = ")
    settings = toy.campaign / "campaign.toml"
    kept = [one for one in settings.read_text().splitlines() if not one.startswith(name)]
    settings.write_text("\n".join([*kept, line, ""]))

    def resume(*, trusted: bool, **chosen: object) -> None:
        chosen_settings(toy.campaign, chosen, trust.Console(), trust=trusted)

    with pytest.raises(CampaignError):
        resume(trusted=False)
    if name != "corpus":  # which no session may change
        resume(trusted=False, **{name: value.strip('"') if value != "true" else True})
    with pytest.raises(CampaignError):
        resume(trusted=False)
    resume(trusted=True)
    resume(trusted=False)
    moved = toy.campaign.rename(tmp_path / "moved")
    with pytest.raises(CampaignError):
        chosen_settings(moved, {}, trust.Console(), trust=False)
