"""Open or prepare the corpus that a campaign names."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from agent.settings.campaign import CampaignSettings
from agent.settings.environment import data_dir
from trainer.corpus import Corpus, open_corpus, prepare


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
