"""Open what runs a session's trials: the device, the lanes and the corpus."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.menu.files import ProxyMenu
from agent.search.campaign_settings import keep_lanes
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import SystemEnvironment, data_dir
from agent.workbench.console import say
from autoresearch import screen
from autoresearch.errors import MachineryError, SettingsError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.words import counted
from trainer.corpus import Corpus, open_corpus, prepare
from trainer.executors.base import Executor
from trainer.executors.choice import choose_executor
from trainer.executors.placement import usable_cores, visible_gpus
from trainer.machine import cuda_driver
from trainer.spec import Budget, Command, Limits, TrialOk, TrialSpec
from trainer.telemetry import NoTelemetry, Telemetry, choose_telemetry
from trajectory.lock import CampaignLock

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


@dataclass(frozen=True, slots=True)
class OpenLanes:
    """An open executor, and the settings found while opening it."""

    executor: Executor
    settings: CampaignSettings
    """Settings with the number of lanes, and on a cluster the kind of device."""
    corpus: Corpus | None
    """None if a command brings its own text."""
    were_measured: bool

    @property
    def here(self) -> bool:
        """Whether trials run on this machine."""
        return self.settings.executor == "local"

    def keep(self, directory: Path) -> None:
        """Write the best number of lanes to the campaign, which exists by now."""
        lanes = self.settings.lanes
        if self.were_measured and self.settings.device == "cpu" and isinstance(lanes, int):
            keep_lanes(directory, lanes)


def open_lanes(
    resources: ExitStack,
    directory: Path,
    settings: CampaignSettings,
    menu: ProxyMenu,
    console: Console,
    *,
    command: Command | None,
) -> OpenLanes:
    """Open what runs the trials of a campaign, for as long as ``resources`` are held.

    :param directory: the campaign's. No measurement runs beside the campaign's own trials.
    :param command: the command that trials run; None for the built-in trainer.
    :raises CampaignLockedError: if lanes would be measured beside another process's trials.
    :raises AutoresearchError: if lanes or corpus are unavailable, in one sentence.
    """
    corpus: Corpus | None = None

    def executor() -> Executor:
        return resources.enter_context(
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

    is_local, is_auto = settings.executor == "local", settings.lanes == "auto"
    # A local executor starts while the corpus is read; a cluster's sends the corpus to its nodes.
    opened = executor() if is_local and not is_auto else None
    if command is None:
        corpus = prepared_corpus(settings, console)
    if is_local and is_auto:
        if (directory / JOURNAL_FILE).exists():
            with CampaignLock(directory):  # refuse if another process is writing the campaign
                pass
        found = _best_lanes(settings, menu, corpus, console)
        settings = settings.model_copy(update={"lanes": found})
    opened = opened or executor()
    if opened.kind is not None:
        settings = settings.model_copy(update={"device_kind": opened.kind})
        for name, why in opened.refused.items():
            say(console, f"without   {name}: {why}", "yellow")
    return OpenLanes(opened, settings, corpus, were_measured=is_local and is_auto)


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


FIRST_STEPS, MOST_STEPS = 3, 200
TRAIN_S = 3.0
"""Target training time in seconds of one measuring trial on one lane."""
WORTH = 1.05
"""Speedup that more lanes must reach together, because they also search a little less well."""


def _best_lanes(
    settings: CampaignSettings, menu: ProxyMenu, corpus: Corpus | None, console: Console
) -> int:
    """Return the number of lanes that ``auto`` means here.

    :param corpus: None if a command brings its own text.
    :raises SettingsError: if the number cannot be measured.
    """
    if settings.device == "cuda":
        return max(1, len(visible_gpus()))
    if settings.device != "cpu":
        return 1
    if corpus is None:
        raise SettingsError(
            "--lanes auto measures with a few short trials, and a command's cannot be made short; "
            "set a number, such as --lanes 2"
        )
    if len(usable_cores()) == 1:
        return 1
    spec = TrialSpec(
        trial_id="",
        config=menu.baseline,
        seed=settings.seed,
        corpus_dir=str(corpus.directory),
        corpus_sha256=corpus.info.sha256,
        budget=Budget(amount=FIRST_STEPS),  # still to be chosen
        horizon_steps=None,
        backend=settings.backend,
        device=settings.device,
        threads=settings.threads,
        scored_apart=bool(menu.code_knobs),
        limits=Limits(wall_s=settings.trial_wall_s, memory_gib=settings.trial_memory_gib),
    )
    found = _measured(spec, allow_unsandboxed=settings.allow_unsandboxed)
    best = 1
    for lanes, steps_per_s in found.items():
        if steps_per_s > WORTH * found[best]:
            best = lanes
    said = ", ".join(f"{speed:.3g} steps/s on {lanes}" for lanes, speed in found.items())
    say(console, f"lanes     {counted(best, 'lane')}, by measurement: {said}")
    return best


def _measured(spec: TrialSpec, *, allow_unsandboxed: bool) -> dict[int, float]:
    """Return the steps per second of all lanes together, by number of lanes."""
    found: dict[int, float] = {}
    for lanes in (2**n for n in range(len(usable_cores()).bit_length())):  # up to one per core
        with (
            tempfile.TemporaryDirectory(prefix="autoresearch-lanes-") as scratch,
            choose_executor(allow_unsandboxed=allow_unsandboxed, lanes=lanes) as executor,
        ):
            # Do not count the first imports and file mappings.
            warm = spec.model_copy(update={"budget": Budget(amount=FIRST_STEPS)})
            [step_s] = _step_s(executor, warm, Path(scratch) / "first", 1)
            if lanes == 1:
                steps = round(TRAIN_S / step_s) if step_s > 0 else MOST_STEPS
                steps = min(MOST_STEPS, max(FIRST_STEPS, steps))
                spec = spec.model_copy(update={"budget": Budget(amount=steps)})
            each = _step_s(executor, spec, Path(scratch) / "all", lanes)
        found[lanes] = sum(1 / step_s for step_s in each)
    return found


def _step_s(executor: Executor, spec: TrialSpec, folder: Path, trials: int) -> list[float]:
    """Return the seconds per step of each of this many concurrent trials."""
    jobs = [
        executor.submit(spec.model_copy(update={"trial_id": f"lane{n}"}), folder / str(n))
        for n in range(trials)
    ]
    found = []
    for job in jobs:
        result = job.result().result
        if not isinstance(result, TrialOk):
            raise MachineryError(
                f"--lanes auto cannot be measured: a short trial of the baseline ended as "
                f"{result.status}; set a number, such as --lanes 2, or fix the menu's defaults"
            )
        found.append(max(1e-6, result.train_s / result.steps))
    return found
