"""Build and read a campaign's first row: its settings and its evaluation protocol, which never
change."""

import platform
import secrets
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from agent.menu.files import ProxyMenu
from agent.settings.campaign import CampaignSettings
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.words import timestamp
from trainer.corpus import Corpus
from trainer.corpus.second_text import holdout_split
from trainer.machine.host import cpu_name
from trainer.spec import CorpusInfo, ScriptInfo
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow


def read_campaign_row(directory: Path) -> CampaignRow | None:
    """Return the first row of the campaign in this directory, or None if there is no campaign.

    :raises CampaignError: if the journal begins with another kind of row.
    """
    journal = directory / JOURNAL_FILE
    if not journal.exists():
        return None
    for row in read_rows(journal):
        if isinstance(row, CampaignRow):
            return row
        raise CampaignError(
            f"{journal} does not begin with a campaign row (its first is {row.kind!r}); "
            "it is not a trajectory of ours"
        )
    return None


def first_row(
    settings: CampaignSettings,
    menu: ProxyMenu,
    corpus: CorpusInfo | None,
    script: ScriptInfo | None,
    *,
    train_tokens: int | None,
    sandbox: str,
) -> CampaignRow:
    """Return the first row of a campaign that begins now.

    :param corpus: None if a command brings its own text, which ``script`` then describes.
    :param train_tokens: tokens that its trials train on; None for the whole train split.
    :param sandbox: how trials are confined.
    """
    row = {
        "id": secrets.token_hex(8),
        "created_at": timestamp(),
        "menu_name": menu.name,
        "menu_sha256": menu.sha256,
        "menu_toml": menu.toml,
        "train_tokens": train_tokens,
        "corpus": corpus,
        "script": script,
        "measure": None if script is None else menu.measure,
        "sandbox": sandbox,
        "versions": versions(),
        "hardware": hardware(),
    }
    protocol = {name: getattr(settings, name) for name in settings.in_first_row()}
    protocol["max_changes"] = settings.max_changes or len(menu.knobs)
    if script is not None:
        protocol["backend"] = "command"
    return CampaignRow.model_validate(row | protocol)


def versions() -> dict[str, str]:
    """Return the versions of the software that measures and decides, by name."""
    found = {"python": platform.python_version()}
    for name in ("autoresearch", "torch", "numpy", "optuna", "tokenizers", "httpx2"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware() -> dict[str, str]:
    """Return a description of the machine: processor, cores, memory and system."""
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cpus": str(psutil.cpu_count() or 0),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
    }


def tokens_without_holdout(corpus: Corpus) -> int:
    """Return how many tokens of the train split trials train on: all but the holdout split.

    :raises CampaignError: if the corpus is too small for a holdout split.
    """
    text = holdout_split(corpus)
    if text is None or text.train_tokens is None:
        raise CampaignError(
            f"a tenth of the corpus {corpus.info.name} ({corpus.info.train_bytes:,} bytes to train "
            "on) has too few whole documents at its end to hold any text back; go without "
            "reserve_holdout, or give it more text, in smaller documents"
        )
    return text.train_tokens
