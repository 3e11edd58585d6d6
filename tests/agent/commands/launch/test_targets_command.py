from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.commands.night.menu import app
from agent.menu.files import load_menu, parse_menu
from autoresearch.errors import AutoresearchError, MachineryError, TargetError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def refused(kind: type[AutoresearchError], *arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def test_targets_are_listed_and_shown() -> None:
    assert [one["name"] for one in run_json("targets")] == [
        "gpt-1b",
        "llama-1b",
        "llama-70b",
        "llama-7b",
    ]
    for name in ("gpt-1b", "llama-1b", "llama-70b", "llama-7b"):
        assert name in run("targets")
    shown = run_json("targets", "llama-7b")
    assert (shown["total_params"], shown["tokens"]) == (8_030_261_248, 160_605_224_960)
    assert "8,030,261,248" in run("targets", "llama-7b")


def test_a_menu_is_written_that_loads_and_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "menu.toml"

    said = run("from-target", "llama-7b", "--params", "200M", "--keep-shape", "-o", str(path))

    menu = load_menu(str(path))
    assert menu.name == "llama-7b-proxy"
    assert (menu.baseline.d_model, menu.baseline.kv_heads) == (1024, 2)
    assert f"autoresearch loop --menu {path}" in said
    assert "parameters count the 50,257 ids of bpe:50257" in said
    assert run_json("validate", str(path))["warnings"] == []
    shown = run("show", str(path))
    assert "d_model / 512" in shown
    assert run_json("show", str(path))["tied"] == dict(menu.tied)
    assert [file.name for file in path.parent.iterdir()] == ["menu.toml"]


def test_without_a_file_the_menu_is_printed() -> None:
    assert parse_menu(run("from-target", "llama-1b", "--tiny"), "printed").name == (
        "llama-1b-tiny-ratios"
    )
    kept = run("from-target", "llama-1b", "--tiny", "--keep-shape")
    assert parse_menu(kept, "printed").name == "llama-1b-tiny"


def test_the_report_has_every_proxy(tmp_path: Path) -> None:
    path = tmp_path / "menu.toml"

    report = run_json("from-target", "llama-7b", "--tiny", "--keep-shape", "-o", str(path))

    assert [proxy["d_model"] for proxy in report["proxies"]] == [128, 256]
    assert report["proxies"][1]["params"] == 2_229_504
    assert report["given_up"] == ["head_dim is 32, the target's 128"]
    assert report["toml"] == path.read_text("utf-8")


def test_ratios_are_searched_unless_fixed_and_say_why_they_transfer(tmp_path: Path) -> None:
    path = tmp_path / "menu.toml"

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
    refused(TargetError, "from-target", "gpt-1b", "--fix=position")


def test_a_size_that_is_none_for_a_cpu_is_remarked_upon(tmp_path: Path) -> None:
    path = str(tmp_path / "menu.toml")

    assert "200M was asked for" in run(
        "from-target", "llama-7b", "--tiny", "--params=200M", "-o", path
    )
    assert "asked for" not in run("from-target", "llama-7b", "--tiny", "-o", path)


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

    assert "did you mean llama-7b?" in refused(TargetError, "from-target", "lama-7b")
    assert "write it like 200M" in refused(
        AutoresearchError, "from-target", "llama-7b", "--params", "many", "-o", str(path)
    )
    assert "outside the 50M to 500M" in refused(
        TargetError, "from-target", "llama-7b", "--params", "10M", "-o", str(path)
    )
    refused(MachineryError, "from-target", "llama-7b", "-o", "/proc/x")
    assert list(tmp_path.iterdir()) == []


def test_any_menu_can_be_held_to_a_target(tmp_path: Path) -> None:
    path = str(tmp_path / "menu.toml")
    run("from-target", "llama-7b", "--keep-shape", "-o", path)

    assert run_json("validate", path, "--target", "llama-7b")["warnings"] == []
    (only,) = run_json("validate", path, "--target", "llama-70b")["warnings"][:1]
    assert only == (
        "the defaults leave the shape of llama-70b: heads to a KV head is 4, the target's 8"
    )
    own = run_json("validate", "cpu-tiny", "--target", "llama-7b")["warnings"]
    assert any("activation is gelu, the target's swiglu" in warning for warning in own)
    assert own[-1].startswith("100.0% of random configs leave the shape of llama-7b")


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:32768"])
def test_the_vocabulary_counts(tokenizer: str, tmp_path: Path) -> None:
    report = run_json("from-target", "llama-7b", "--keep-shape", "--tokenizer", tokenizer)

    ids = 257 if tokenizer == "bytes" else 32768
    assert report["vocab_size"] == ids
    (proxy,) = [one for one in report["proxies"] if one["d_model"] == 1024]
    assert proxy["params"] == 109_069_312 + 2 * ids * 1024
    assert parse_menu(report["toml"], "x").campaign.tokenizer == tokenizer
