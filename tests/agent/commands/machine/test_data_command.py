import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent.commands.machine.data import app
from autoresearch.errors import CorpusError
from tests.support.texts import corpus_texts, make_texts, write_folder
from trainer.corpus import open_corpus


class Home:
    """Hold a folder of text and the cache it is prepared into."""

    def __init__(self, path: Path) -> None:
        self.text = write_folder(path / "text", make_texts(120))
        self.cache_dir = path / "corpora"

    def run(self, *arguments: str) -> Result:
        environment = {"AUTORESEARCH_DATA_DIR": str(self.cache_dir.parent)}
        return CliRunner().invoke(app, arguments, env=environment)

    def report(self, *arguments: str) -> Any:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_prepare_as_json_is_the_corpus_and_what_was_left_out(home: Home) -> None:
    (home.text / "picture.png").write_bytes(b"\x89")
    report = home.report("prepare", str(home.text), "--name", "mine", "--heldout-bytes", "2000")
    corpus = open_corpus(Path(report["directory"]))
    assert report == {
        **corpus.info.model_dump(),
        "bytes_per_token": 1.0,
        "directory": str(corpus.directory),
        "skipped_files": 1,
        "blank_documents": 0,
    }
    assert report["name"] == "mine"
    assert report["heldout_documents"] == 8
    assert (
        home.report("prepare", str(home.text), "--name", "mine", "--heldout-bytes=2000") == report
    )


def test_bytes_per_token_counts_text_alone(home: Home) -> None:
    report = home.report("prepare", str(home.text), "--tokenizer", "bpe:400")
    corpus = open_corpus(Path(report["directory"]))
    texts = [*corpus_texts(corpus, "train"), *corpus_texts(corpus, "heldout")]
    text_bytes = sum(len(text.encode()) for text in texts)
    tokens = len(corpus.train) + len(corpus.heldout) - len(texts)
    assert report["bytes_per_token"] == pytest.approx(text_bytes / tokens)
    assert report["bytes_per_token"] > 1.5


def test_the_field_of_records_can_be_named(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"body": text}) + "\n" for text in make_texts(120)))
    report = home.report("prepare", str(path), "--text-field", "body")
    assert report["documents"] == 120
    assert isinstance(home.run("prepare", str(path)).exception, CorpusError)


def test_list_shows_every_corpus_and_what_is_damaged(home: Home) -> None:
    assert home.report("list") == {"corpora": [], "damaged": []}
    sound = home.report("prepare", str(home.text), "--name", "sound")
    broken = home.report("prepare", str(home.text), "--name", "broken")
    assert len(home.report("list")["corpora"]) == 2
    (Path(broken["directory"]) / "train.bin").unlink()
    report = home.report("list")
    assert [corpus["directory"] for corpus in report["corpora"]] == [sound["directory"]]
    assert len(report["damaged"]) == 1
    assert "train.bin" in report["damaged"][0]
    shown = home.run("list").stdout
    assert Path(sound["directory"]).name in shown


def test_show_finds_a_corpus_by_name_or_folder(home: Home) -> None:
    made = home.report("prepare", str(home.text))
    for name in ("text", made["directory"], Path(made["directory"]).name):
        shown = home.report("show", name)
        assert shown["sha256"] == made["sha256"]
    assert made["sha256"] in home.run("show", "text").stdout
    assert isinstance(home.run("show", "other").exception, CorpusError)
