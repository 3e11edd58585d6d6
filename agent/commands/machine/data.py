"""``autoresearch data``: prepare text for training, and list prepared corpora."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress
from rich.console import Console, RenderableType

from agent.commands.options import JsonOption
from agent.session.console import answer, plain_table
from agent.settings.environment import data_dir
from autoresearch.errors import CorpusError
from trainer.corpus import (
    Corpus,
    Progress,
    corpus_directories,
    find_corpus,
    open_corpus,
)
from trainer.corpus import prepare as prepare_corpus

app = typer.Typer(no_args_is_help=True, help="List and prepare the texts that proxies train on.")

COLUMNS = (
    progress.TextColumn("{task.description}"),
    progress.BarColumn(),
    progress.DownloadColumn(),
    progress.TransferSpeedColumn(),
    progress.TimeRemainingColumn(),
)
Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE]...",
        help="stdlib (the default: Python's own library), a file, a folder, or hf:NAME, "
        "hf:NAME:SPLIT or hf:NAME@CONFIG:SPLIT.",
    ),
]


@app.command()
def prepare(
    sources: Sources = None,
    *,
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe:VOCAB, or file:PATH of a tokenizer.json.")
    ] = "bytes",
    heldout_bytes: Annotated[
        int, typer.Option(help="Bytes of text to hold out, a tenth of it at most.")
    ] = 262_144,
    name: Annotated[
        str | None, typer.Option(help="The corpus's name.", show_default="the sources'")
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="Field of JSONL, Parquet or dataset records that holds the text.")
    ] = "text",
    as_json: JsonOption = False,
) -> None:
    """De-duplicate, split and tokenize text into a corpus, or find it already prepared."""
    stages: dict[str, progress.TaskID] = {}
    last: list[Progress] = []
    is_seen = sys.stderr.isatty()
    bar = progress.Progress(
        *COLUMNS, console=Console(stderr=True), transient=True, disable=not is_seen
    )

    def on_progress(at: Progress) -> None:
        last[:] = [at]
        if at.stage not in stages:
            stages[at.stage] = bar.add_task(at.stage, total=at.total_bytes)
        bar.update(stages[at.stage], completed=at.done_bytes, total=at.total_bytes)

    with bar:
        corpus = prepare_corpus(
            sources or ["stdlib"],
            cache_dir=_cache_dir(),
            tokenizer=tokenizer,
            heldout_bytes=heldout_bytes,
            name=name,
            text_field=text_field,
            on_progress=on_progress,
        )
    skipped = last[-1].skipped_files
    seen = {"skipped_files": skipped, "blank_documents": last[-1].blank_documents}
    lines = _lines(corpus)
    if skipped:
        lines.append(f"left out    {skipped:,} files that are not text by their suffix")
    answer(_fields(corpus) | seen, lines, as_json=as_json, indent=2)


@app.command("list")
def list_corpora(as_json: JsonOption = False) -> None:
    """List the prepared corpora."""
    directory = _cache_dir()
    corpora, damaged = [], []
    for folder in corpus_directories(directory):
        try:
            corpora.append(open_corpus(folder))
        except CorpusError as error:
            damaged.append(str(error))
    lines: list[RenderableType] = [f"damaged: {sentence}" for sentence in damaged]
    if corpora:
        rows = (
            (
                corpus.directory.name,
                corpus.info.tokenizer,
                _size(corpus.info.train_bytes + corpus.info.heldout_bytes),
                f"{corpus.info.train_tokens + corpus.info.heldout_tokens:,}",
                _size(corpus.info.heldout_bytes),
            )
            for corpus in corpora
        )
        names = ("corpus", "tokenizer", "text", "tokens", "held out")
        lines.insert(0, plain_table(*names, rows=rows))
    nothing = f"no corpus in {directory}; make one with: autoresearch data prepare"
    fields = {"corpora": [_fields(corpus) for corpus in corpora], "damaged": damaged}
    answer(fields, lines or [nothing], as_json=as_json, indent=2)


@app.command()
def show(
    corpus: Annotated[
        str, typer.Argument(metavar="DIR|NAME", help="A corpus's folder, or its name in the cache.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Show what a prepared corpus holds."""
    found = find_corpus(corpus, _cache_dir())
    answer(_fields(found), _lines(found), as_json=as_json, indent=2)


def _cache_dir() -> Path:
    return data_dir() / "corpora"


def _bytes_per_token(corpus: Corpus) -> float:
    """Return the UTF-8 bytes of text per token of text, not counting separators."""
    info = corpus.info
    text_tokens = (
        info.train_tokens + info.heldout_tokens - info.train_documents - info.heldout_documents
    )
    return (info.train_bytes + info.heldout_bytes) / text_tokens


def _fields(corpus: Corpus) -> dict[str, Any]:
    return {
        **corpus.info.model_dump(),
        "bytes_per_token": _bytes_per_token(corpus),
        "directory": str(corpus.directory),
    }


def _lines(corpus: Corpus) -> list[str]:
    info = corpus.info
    return [
        f"{info.name}: {info.train_documents + info.heldout_documents:,} documents, "
        f"{info.duplicates:,} duplicates dropped",
        f"train       {info.train_documents:,} documents, {_size(info.train_bytes)}, "
        f"{info.train_tokens:,} tokens",
        f"held out    {info.heldout_documents:,} documents, {info.heldout_bytes:,} bytes, "
        f"{info.heldout_tokens:,} tokens",
        f"tokenizer   {info.tokenizer}, {info.vocab_size:,} ids as {info.dtype}, "
        f"{_bytes_per_token(corpus):.2f} bytes per token",
        f"sha256      {info.sha256}",
        f"where       {corpus.directory}",
    ]


def _size(count: int) -> str:
    if count < 1e6:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"
