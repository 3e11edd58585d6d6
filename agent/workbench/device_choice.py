"""Choose the device of a new campaign's trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from agent.menu.files import ProxyMenu
from agent.settings.environment import SystemEnvironment
from agent.workbench.console import say
from autoresearch import screen
from autoresearch.errors import SettingsError
from trainer.machine import cuda_driver
from trainer.telemetry import NoTelemetry, Telemetry, choose_telemetry

AUTO = "auto"


def choose_device(menu: ProxyMenu, chosen: Mapping[str, Any], console: Console) -> str:
    """Return ``cpu``, ``cuda`` or ``cuda:N`` for a new campaign, and print the choice and its
    reason.

    A device that the user named is taken as it is. Otherwise the menu's own comes first, then CUDA
    if a driver starts inside the sandbox, then the CPU.

    :raises SettingsError: if the menu needs a GPU and none works.
    """
    if "device" in chosen:
        return str(chosen["device"])
    device, why = _found(menu, chosen.get("executor", "local"))
    if device == "cpu" and menu.campaign.min_device == "cuda":
        raise SettingsError(
            f"menu {menu.name} needs a GPU, and {why}; fix that (`autoresearch doctor` tests it), "
            "or train on the CPU, slowly, with --device cpu"
        )
    screen.outlive()  # a full disk must not end the campaign at this line
    say(console, f"device    {device}: {why}")
    return device


def _found(menu: ProxyMenu, executor: str) -> tuple[str, str]:
    if menu.campaign.device is not None:
        return menu.campaign.device, f"menu {menu.name} is made for it; --device chooses another"
    if executor != "local":  # the cluster's nodes have the devices; this machine may have none
        return menu.campaign.min_device, "the menu's own, as trials run on a cluster"
    if not cuda_driver.is_installed():
        return "cpu", "this machine has no NVIDIA driver"
    from trainer.training.cuda_probe import probe_cuda  # noqa: PLC0415 (torch)

    probe = probe_cuda()
    return ("cuda" if probe.works else "cpu"), probe.said


def device_telemetry(device: str, places: int = 1, *, here: bool = True) -> Telemetry:
    """Return the telemetry of ``cpu``, ``cuda`` or ``cuda:N``; never fail.

    :param places: number of concurrent trials. With several GPUs nothing is sampled, because one
        meter would report one GPU as if it were all.
    :param here: whether the trials run on this machine.
    """
    if not here:
        return NoTelemetry("trials run on the nodes of a cluster")
    if places > 1 and device != "cpu":
        return NoTelemetry(f"{places} GPUs are in use, and one meter does not cover them")
    cuda = SystemEnvironment()
    return choose_telemetry(
        device,
        visible_devices=cuda.cuda_visible_devices,
        device_order=cuda.cuda_device_order,
    )
