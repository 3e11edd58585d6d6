"""``autoresearch data``: prepare text for training, and list prepared corpora."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import progress
from rich.console import Console
from rich.markup import escape

from agent.settings.environment import data_dir
from agent.workbench.console import plain_table
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

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
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
    as_json: AsJson = False,
) -> None:
    """De-duplicate, split and tokenize text into a corpus, or find it already prepared."""
    last: list[Progress] = []
    with _progress_bar() as show_progress:

        def on_progress(at: Progress) -> None:
            last[:] = [at]
            show_progress(at)

        corpus = prepare_corpus(
            sources or ["stdlib"],
            cache_dir=_cache_dir(),
            tokenizer=tokenizer,
            heldout_bytes=heldout_bytes,
            name=name,
            text_field=text_field,
            on_progress=on_progress,
        )
    if as_json:
        counts = asdict(last[-1])
        seen = {key: counts[key] for key in ("skipped_files", "blank_documents")}
        typer.echo(json.dumps(_fields(corpus) | seen, indent=2))
        return
    _print(corpus)
    if last[-1].skipped_files:
        typer.echo(
            f"left out    {last[-1].skipped_files:,} files that are not text by their suffix"
        )


@app.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """List the prepared corpora."""
    directory = _cache_dir()
    corpora, damaged = [], []
    for folder in corpus_directories(directory):
        try:
            corpora.append(open_corpus(folder))
        except CorpusError as error:
            damaged.append(str(error))
    if as_json:
        fields = {"corpora": [_fields(corpus) for corpus in corpora], "damaged": damaged}
        typer.echo(json.dumps(fields, indent=2))
        return
    if not corpora and not damaged:
        typer.echo(f"no corpus in {directory}; make one with: autoresearch data prepare")
        return
    table = plain_table("corpus", "tokenizer", "text", "tokens", "held out")
    for corpus in corpora:
        info = corpus.info
        table.add_row(
            escape(corpus.directory.name),
            escape(info.tokenizer),
            _size(info.train_bytes + info.heldout_bytes),
            f"{info.train_tokens + info.heldout_tokens:,}",
            _size(info.heldout_bytes),
        )
    Console().print(table)
    for sentence in damaged:
        typer.echo(f"damaged: {sentence}")


@app.command()
def show(
    corpus: Annotated[
        str, typer.Argument(metavar="DIR|NAME", help="A corpus's folder, or its name in the cache.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show what a prepared corpus holds."""
    found = find_corpus(corpus, _cache_dir())
    if as_json:
        typer.echo(json.dumps(_fields(found), indent=2))
    else:
        _print(found)


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


def _print(corpus: Corpus) -> None:
    info = corpus.info
    typer.echo(
        f"{info.name}: {info.train_documents + info.heldout_documents:,} documents, "
        f"{info.duplicates:,} duplicates dropped\n"
        f"train       {info.train_documents:,} documents, {_size(info.train_bytes)}, "
        f"{info.train_tokens:,} tokens\n"
        f"held out    {info.heldout_documents:,} documents, {info.heldout_bytes:,} bytes, "
        f"{info.heldout_tokens:,} tokens\n"
        f"tokenizer   {info.tokenizer}, {info.vocab_size:,} ids as {info.dtype}, "
        f"{_bytes_per_token(corpus):.2f} bytes per token\n"
        f"sha256      {info.sha256}\n"
        f"where       {corpus.directory}"
    )


def _size(count: int) -> str:
    if count < 1e6:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


@contextmanager
def _progress_bar() -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar on stderr, if that is a terminal, with one line per stage."""
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    tasks: dict[str, progress.TaskID] = {}
    with bar:

        def show_progress(at: Progress) -> None:
            if at.stage not in tasks:
                tasks[at.stage] = bar.add_task(at.stage, total=at.total_bytes)
            bar.update(tasks[at.stage], completed=at.done_bytes, total=at.total_bytes)

        yield show_progress
