"""Open what runs a session's trials: the device, the lanes and the corpus."""

from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.menu.files import ProxyMenu
from agent.session.console import say
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import SystemEnvironment, data_dir
from autoresearch import screen
from autoresearch.errors import MachineryError, SettingsError
from autoresearch.words import counted
from trainer.corpus import Corpus, open_corpus, prepare
from trainer.executors.base import Executor
from trainer.executors.choice import choose_executor
from trainer.executors.lanes import usable_cores, visible_gpus
from trainer.machine import cuda_driver
from trainer.machine.gpu import gpu_count
from trainer.machine.host import require_torch
from trainer.schema import Command, trainer_of
from trainer.telemetry import NoTelemetry, Telemetry, choose_telemetry

AUTO = "auto"


def choose_device(menu: ProxyMenu, chosen: Mapping[str, Any], console: Console) -> str:
    """Return ``cpu``, ``cuda`` or ``cuda:N`` for a new campaign, and print the choice and its
    reason.

    A device that the user named is taken as it is. Otherwise the menu's own comes first, then CUDA
    if a driver starts inside the sandbox, then the CPU.

    :raises SettingsError: if the menu needs a GPU and none works.
    :raises MachineryError: if the menu needs torch, and it is not installed.
    """
    if menu.trainer is None:
        require_torch()
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
    if find_spec("torch") is None:  # the command's Python has its own; the session tries CUDA there
        gpus = gpu_count()
        return ("cuda" if gpus else "cpu"), f"NVIDIA's driver sees {counted(gpus, 'GPU')}"
    from trainer.training.cuda_probe import probe_cuda  # noqa: PLC0415 (torch)

    probe = probe_cuda()
    return ("cuda" if probe.works else "cpu"), probe.said


def chosen_device(menu: ProxyMenu, asked: str, console: Console) -> str:
    """Return the device of a command that takes one by ``--device``, ``auto`` included; see
    :func:`choose_device`."""
    return choose_device(menu, {} if asked == AUTO else {"device": asked}, console)


def device_telemetry(
    device: str, places: int = 1, *, here: bool = True, gpu: str | None = None
) -> Telemetry:
    """Return the telemetry of ``cpu``, ``cuda`` or ``cuda:N``; never fail.

    :param places: number of concurrent trials. With several GPUs nothing is sampled, because one
        meter would report one GPU as if it were all.
    :param here: whether the trials run on this machine.
    :param gpu: one of several GPUs, by its name in CUDA_VISIBLE_DEVICES; None: all that are
        visible.
    """
    if not here:
        return NoTelemetry("trials run on the nodes of a cluster")
    if places > 1 and device != "cpu":
        return NoTelemetry(f"{places} GPUs are in use, and one meter does not cover them")
    cuda = SystemEnvironment()
    return choose_telemetry(
        device,
        visible_devices=cuda.cuda_visible_devices if gpu is None else gpu,
        device_order=cuda.cuda_device_order,
    )


def open_lanes(
    resources: ExitStack,
    directory: Path,
    settings: CampaignSettings,
    console: Console,
    *,
    command: Command | None,
) -> tuple[Executor, CampaignSettings, Corpus | None]:
    """Open what runs the trials of a campaign, for as long as ``resources`` are held.

    Return it with the settings, which now have the number of lanes and on a cluster the kind of
    device, and with the corpus.

    :param directory: the campaign's.
    :param command: the command that trials run, which brings its own text; None for the built-in
        trainer.
    :raises AutoresearchError: if lanes or corpus are unavailable, in one sentence.
    """
    if command is None:
        require_torch()
    is_local = settings.executor == "local"
    if settings.lanes == "auto" and is_local:
        settings = settings.model_copy(update={"lanes": lanes_here(settings.device)})
    # A cluster's executor sends the corpus to its nodes.
    corpus = prepared_corpus(settings, console) if trainer_of(command).reads_corpus else None
    executor = resources.enter_context(
        choose_executor(
            settings.executor,
            allow_unsandboxed=settings.allow_unsandboxed,
            command=command,
            lanes=None if settings.lanes == "auto" else settings.lanes,
            device=settings.device,
            kind=settings.device_kind,
            campaign=directory,
            corpus=None if corpus is None else corpus.directory,
        )
    )
    if command is not None and is_local and settings.device != "cpu":
        _refuse_unless_cuda_starts(executor, command, settings.device, console)
    if executor.kind is not None:
        settings = settings.model_copy(update={"device_kind": executor.kind})
        for name, why in executor.refused.items():
            say(console, f"without   {name}: {why}", "yellow")
    return executor, settings, corpus


def _refuse_unless_cuda_starts(
    executor: Executor, command: Command, device: str, console: Console
) -> None:
    """Try CUDA in a trial of the command.

    :raises MachineryError: if it does not start where the command needs it.
    """
    from trainer.executors.command_probe import probe_command  # noqa: PLC0415 (of use to few)

    with console.status("starting CUDA in a trial of the command"):
        probe = probe_command(executor, command, device)
    if probe.state == "bad":
        raise MachineryError(
            f"{probe.said}; run `autoresearch doctor --menu MENU` once it is fixed"
        )
    say(console, f"cuda      {probe.said}", "yellow" if probe.state == "note" else "")


MOST_LANES_ON_A_CPU = 4
"""Lanes that ``auto`` opens on a CPU at most: with more, each proposal knows fewer results."""


def lanes_here(device: str) -> int:
    """Return the number of lanes that ``auto`` means on this machine."""
    if device == "cpu":
        return min(MOST_LANES_ON_A_CPU, len(usable_cores()))
    return max(1, len(visible_gpus())) if device == "cuda" else 1


def prepared_corpus(settings: CampaignSettings, console: Console) -> Corpus:
    """Open the prepared corpus that the settings name, or prepare the source they name.

    :raises CorpusError: if neither works, in one sentence.
    """
    directory = Path(settings.corpus).expanduser()
    if (directory / "meta.json").is_file():
        return open_corpus(directory.absolute())
    with console.status(f"preparing the corpus {settings.corpus}"):
        return prepare(
            [settings.corpus],
            cache_dir=data_dir() / "corpora",
            tokenizer=settings.tokenizer,
            heldout_bytes=settings.heldout_bytes,
        )
