"""Start, stop and resume the loop through the command, with simulated trials."""

import os
import shutil
import threading
import tomllib
from pathlib import Path

import pytest
from rich.console import Console

from agent.menu.files import load_menu
from agent.session.campaign_run import chosen_settings
from autoresearch.errors import SpecError
from tests.support.foreign import single_knob_lines, write_jsonl
from tests.support.places import NIGHT
from tests.support.simulated.commands import SimulatedToy
from tests.support.waiting import wait_until
from trainer.isolation.trial_files import sealed_path
from trainer.schema import TrialFailed


@pytest.fixture
def toy(tmp_path: Path) -> SimulatedToy:
    return SimulatedToy(tmp_path)


def test_a_baseline_that_fails_is_accounted_for_and_tried_again(tmp_path: Path) -> None:
    toy = SimulatedToy(tmp_path, lambda _: TrialFailed(status="timeout", message="too long"))
    for attempt in (1, 2):
        failed = toy.loop(1)
        assert failed.returncode == 1
        notes = [row for row in toy.rows() if row["kind"] == "event" and row["trial_ids"]]
        assert [note["trial_ids"] for note in notes] == [
            [f"t{number:06d}"] for number in range(1, attempt + 1)
        ]


def story(toy: SimulatedToy) -> list[object]:
    return [(row["proposal"], row["config_hash"], row["decision"]) for row in toy.iterations()]


def test_a_journal_alone_resumes_the_same_search(toy: SimulatedToy, tmp_path: Path) -> None:
    whole = SimulatedToy(tmp_path / "whole")
    assert whole.loop(4, "--set=z_keep=2.5").returncode == 0
    assert toy.loop(2, "--set=z_keep=2.5").returncode == 0
    kept = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    journal = (toy.campaign / "trajectory.jsonl").read_bytes()
    shutil.rmtree(toy.campaign)
    toy.campaign.mkdir()
    (toy.campaign / "trajectory.jsonl").write_bytes(journal)
    for _ in range(2):  # the second time nothing is left to do
        more = toy.run("loop", "--iters=4", f"--campaign={toy.campaign}", "--no-confirm")
        assert more.returncode == 0, more.stderr
        assert story(toy) == story(whole)
    assert (toy.campaign / "trajectory.jsonl").read_bytes().startswith(journal)
    made = tomllib.loads((toy.campaign / "campaign.toml").read_text())
    assert made == kept | {"menu": made["menu"]}

    other = shutil.copytree(toy.home / "text", toy.home / "other")
    for path in other.iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    (toy.campaign / "campaign.toml").unlink()
    refused = toy.run("loop", "--iters=5", f"--campaign={toy.campaign}", f"--corpus={other}")
    assert refused.returncode == 1
    assert not (toy.campaign / "campaign.toml").exists()


def test_what_may_change_between_sessions_and_what_may_not(toy: SimulatedToy) -> None:
    assert toy.loop(2, "--lanes=2").returncode == 0
    assert tomllib.loads((toy.campaign / "campaign.toml").read_text())["lanes"] == 2
    # A trial left pipes where its files should be: they do not hang the resumption.
    planted = toy.campaign / "trials" / "t000099"
    planted.mkdir()
    orders = [sealed_path(planted.with_name(name)) for name in ("t000001", planted.name)]
    orders[1].write_bytes(orders[0].read_bytes())
    os.mkfifo(planted / "result.json")
    os.mkfifo(planted / "spec.json")
    written = toy.menu.read_text()
    toy.menu.write_text(written.replace("high = 1e-1", "high  =  0.1  # the same"))
    resumed = toy.loop(3, "--lanes=1")
    assert resumed.returncode == 0, resumed.stderr
    assert [row.get("lanes") for row in toy.iterations()] == [2, 2, None]
    assert ["t000099"] in [row["trial_ids"] for row in toy.rows() if row["kind"] == "event"]

    before = (toy.campaign / "trajectory.jsonl").read_bytes()
    for change in ("--budget=7 steps", "--set=horizon_steps=budget", "--seed=9"):
        refused = toy.loop(4, change)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    toy.menu.write_text(written.replace("high = 1e-1", "high = 2e-1"))
    assert toy.loop(4).returncode == 1
    toy.menu.write_text(written)
    for path in (toy.home / "text").iterdir():
        path.write_text(path.read_text().replace("loop", "hoop"))
    assert toy.loop(4).returncode == 1
    assert (toy.campaign / "trajectory.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_pause_file_pauses_and_its_removal_resumes(toy: SimulatedToy) -> None:
    """The loop and a stress, of a campaign whose budget is in tokens."""
    toy.menu.write_text(toy.menu.read_text().replace('"6 steps"', '"768 tokens"'))
    toy.campaign.mkdir(parents=True)
    pause, journal = toy.campaign / "pause", toy.campaign / "trajectory.jsonl"
    few = ("stress", f"--campaign={toy.campaign}", "--top=1", "--steps=50", "--seeds=1")
    seen: list[list[str]] = []

    def resumes() -> None:
        """Remove the file once the pause is in the journal, and record the rows of that moment."""
        events = 2 * len(seen) + 1
        wait_until(lambda: journal.exists() and len(toy.rows("event")) == events)
        seen.append([row["kind"] for row in toy.rows()])
        pause.unlink()

    for words in (toy.arguments(1)[1:], (*few, "--no-baseline")):
        pause.touch()
        remover = threading.Thread(target=resumes)
        remover.start()
        done = toy.run(*words)
        remover.join()
        assert done.returncode == 0, done.stderr
    assert [row["event"] for row in toy.rows("event")] == ["paused", "resumed"] * 2
    assert seen[0] == ["campaign", "baseline", "baseline", "event"]
    assert (len(toy.iterations()), "stress" in seen[1]) == (1, False)
    (row,) = toy.rows("stress")
    assert row["trial"]["result"]["tokens"] == 50 * 4 * 32


def notes(toy: SimulatedToy) -> list[str]:
    return [row["why"] for row in toy.rows("event") if row["event"] == "note"]


@pytest.mark.slow
def test_priors_change_no_judgment_and_a_logger_that_fails_no_campaign(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    night = tmp_path / "night"
    night.mkdir()
    shutil.copy(NIGHT / "trajectory.jsonl", night)
    write_jsonl(tmp_path / "night.jsonl", single_knob_lines(30))
    priors = (f"--prior={night}", "--prior=night.jsonl")
    alone, informed = SimulatedToy(tmp_path), SimulatedToy(tmp_path)
    for one, name, more in ((alone, "alone", ()), (informed, "informed", priors)):
        one.campaign = tmp_path / "runs" / name
        done = one.loop(3, "--proposer=random", *more)
        assert done.returncode == 0, done.stderr
    assert story(alone) == story(informed)
    assert notes(alone) == []
    [note] = notes(informed)
    assert str(night) in note
    assert "night.jsonl" in note
    (tmp_path / "in-the-way").write_text("x")
    loggers = ("--log=tensorboard", "--log=tensorboard:in-the-way/below")
    for iterations, more, said in ((4, (), 2), (5, loggers, 3)):
        done = informed.loop(iterations, *more)
        assert done.returncode == 0, done.stderr
        assert len(notes(informed)) == said
    assert list((informed.campaign / "tensorboard" / "campaign").glob("events.*"))
    assert list((informed.campaign / "tensorboard" / "trials").glob("*/events.*"))


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        (("--set=z_keep=1000",), "nothing kept"),
        (("--set=z_keep=0",), "claimed"),
        (("--set=z_keep=0", "--confirm"), "confirmed"),
    ],
)
def test_the_night_s_last_line_is_its_result(
    more: tuple[str, ...], verdict: str, toy: SimulatedToy
) -> None:
    night = toy.loop(6, *more)
    assert night.returncode == 0, night.stderr
    headline = toy.answer("top", f"--campaign={toy.campaign}")["headline"]
    assert headline["verdict"] == verdict
    assert (night.stdout + night.stderr).splitlines()[-1].split(maxsplit=1) == [
        "result",
        headline["line"],
    ]
    assert (headline["smallest_gain"] is not None) == (verdict == "nothing kept")


def test_fp8_is_refused_before_anything_is_created_unless_megatron_trains(tmp_path: Path) -> None:
    text = load_menu("cpu-tiny").toml.replace('precision = "bf16"\n', "")
    menu = tmp_path / "fp8.toml"
    for chosen in ("bf16", "fp8"):
        knob = 'type = "choice"\nchoices = ["bf16", "fp8"]'
        menu.write_text(f'{text}\n[knobs.precision]\n{knob}\ndefault = "{chosen}"\n')
        with pytest.raises(SpecError):
            chosen_settings(tmp_path / "campaign", {"menu": str(menu)}, Console())
    assert not (tmp_path / "campaign").exists()
