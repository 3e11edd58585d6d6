import io
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from agent.menu.files import load_menu, parse_menu
from agent.menu.proxy_menu import ProxyMenu
from agent.session import lane_opening as module
from agent.session.campaign_run import chosen_settings
from agent.session.lane_opening import choose_device, device_telemetry
from autoresearch.errors import SettingsError
from tests.support.programs import finished
from tests.support.stub_cuda import build_stub, make_machine
from trainer.machine import cuda_driver
from trainer.telemetry import NoTelemetry

SPARK = load_menu("spark-354m")
TINY = load_menu("cpu-tiny")
ANY = parse_menu(TINY.toml.replace('device = "cpu"\n', ""), "any")


def chosen(menu: ProxyMenu, **asked: Any) -> tuple[str, str]:
    """Return the device and the printed text."""
    console = Console(file=io.StringIO(), width=200)
    device = choose_device(menu, asked, console)
    return device, console.file.getvalue()  # type: ignore[attr-defined]


needs_no_driver = pytest.mark.skipif(cuda_driver.is_installed(), reason="a driver is installed")


@needs_no_driver
def test_a_menu_made_for_a_gpu_does_not_start_without_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        choose_device(SPARK, {}, Console(quiet=True))
    with pytest.raises(SettingsError):
        chosen_settings(tmp_path, {"menu": "spark-354m"}, Console(quiet=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_driver_that_does_not_start_is_named(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    machine = make_machine(build_stub(tmp_path / "library"), tmp_path / "machine")
    command = (sys.executable, "-m", "autoresearch", "loop", "--iters=0", "--menu=spark-354m")
    ended = finished(*command, env=machine.environ(ends="803"), cwd=tmp_path)
    assert ended.returncode == 1
    assert "803" in ended.stderr
    assert not (tmp_path / "runs").exists()


def test_a_named_device_is_taken_and_cpu_tiny_stays_on_the_cpu(tmp_path: Path) -> None:
    assert chosen(SPARK, device="cpu") == ("cpu", "")
    assert chosen(TINY, device="cuda:1") == ("cuda:1", "")
    assert chosen(TINY)[0] == "cpu"
    for asked in ({}, {"device": "auto"}):
        settings, _ = chosen_settings(tmp_path, {"menu": "cpu-tiny", **asked}, Console(quiet=True))
        assert settings.device == "cpu"


@needs_no_driver
def test_without_a_driver_it_is_the_cpu_and_on_a_cluster_the_menus_own() -> None:
    device, printed = chosen(ANY)
    assert device == "cpu"
    assert "driver" in printed
    assert chosen(SPARK, executor="ray")[0] == "cuda"
    assert chosen(ANY, executor="ray")[0] == "cpu"


def test_the_meter_of_one_gpu_does_not_speak_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Mock(return_value=NoTelemetry("a test"))
    monkeypatch.setattr(module, "choose_telemetry", choose)
    assert device_telemetry("cuda", 1).description == "none: a test"
    for several in (device_telemetry("cuda", 4), device_telemetry("cuda", 1, here=False)):
        assert several.description != "none: a test"
        assert several.sample().blank
    choose.assert_called_once()
