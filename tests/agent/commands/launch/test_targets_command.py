from pathlib import Path

from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import load_menu
from autoresearch.errors import AutoresearchError, MachineryError, TargetError
from funnel.targets.ratios import RATIOS
from tests.agent.menu.test_files_command import run, run_json


def refused(kind: type[AutoresearchError], *arguments: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, kind), result.output


def test_ratios_are_searched_unless_fixed_and_say_why_they_transfer(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "menu.toml"

    said = run("from-target", "gpt-1b", "--equal=flops", "--fix=positions", "-o", str(path))
    report = run_json("from-target", "gpt-1b", "--equal=flops", "--fix=positions")

    menu = load_menu(str(path))
    assert report["toml"] == path.read_text("utf-8")
    assert report["fixed"] == ["positions"]
    assert len(report["ratios"]) >= 8
    assert "positions" in menu.constants
    for ratio in report["ratios"]:
        assert ratio["knob"] in menu.knobs
        assert ratio["why"] in said
        assert ratio["source"] in said
    # PaLM's count for 12 layers of width 1024, at 1024 tokens and 50,257 token ids.
    weights = 12 * 12 * 1024**2 + 50257 * 1024
    assert report["amount"] == 6 * weights + 12 * 12 * 1024 * 1024
    assert run_json("validate", str(path))["warnings"] == []
    assert run_json("show", str(path))["tied"] == dict(menu.tied)
    assert [file.name for file in path.parent.iterdir()] == ["menu.toml"]
    refused(TargetError, "from-target", "gpt-1b", "--fix=position")


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "menu.toml"
    path.write_text("mine", encoding="utf-8")
    command = ("from-target", "llama-7b", "-o", str(path))

    refused(TargetError, *command)
    assert path.read_text("utf-8") == "mine"
    path.unlink()
    run(*command)
    written = path.read_bytes()
    run(*command)
    assert path.read_bytes() == written


def test_what_cannot_be_is_one_sentence_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "menu.toml"

    refused(TargetError, "from-target", "lama-7b")
    for params in ("many", "10M"):
        refused(AutoresearchError, "from-target", "llama-7b", "--params", params, "-o", str(path))
    refused(MachineryError, "from-target", "llama-7b", "-o", "/proc/x")
    assert list(tmp_path.iterdir()) == []


def test_any_menu_can_be_held_to_a_target(tmp_path: Path) -> None:
    path = str(tmp_path / "menu.toml")
    run("from-target", "llama-7b", *(f"--fix={name}" for name in RATIOS), "-o", path)

    assert run_json("validate", path, "--target", "llama-7b")["warnings"] == []
    for menu, target in ((path, "llama-70b"), ("cpu-tiny", "llama-7b")):
        assert run_json("validate", menu, "--target", target)["warnings"]
