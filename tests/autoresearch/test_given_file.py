"""Check that a file named by a person is read whole, or refused at once."""

import errno
import os
import resource
from pathlib import Path

import pytest

from agent.menu.files import load_menu
from agent.proposers.choice import program_text as read_program
from agent.settings.campaign import CampaignSettings
from autoresearch.errors import (
    AutoresearchError,
    CorpusError,
    HandoffError,
    MenuError,
    SettingsError,
)
from autoresearch.files import open_regular, read_given
from funnel.forecast.band import read_run
from funnel.forecast.cloud_log import TokenCount, read_cloud_log

READERS = [
    (read_program, SettingsError),
    (lambda path: load_menu(str(path)), MenuError),
    (CampaignSettings.from_toml, SettingsError),
    (read_run, HandoffError),
    (lambda path: read_cloud_log(path, TokenCount(1, 1)), HandoffError),
]


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to("file")
    assert read_given(tmp_path / "link", 1000) == b"x" * 1000
    with pytest.raises(OSError, match="larger than 0 MiB"):
        read_given(tmp_path / "file", 999)


@pytest.mark.parametrize(("read", "error"), READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "huge"])
def test_what_has_no_end_is_refused_at_once(
    tmp_path: Path, read: object, error: type[AutoresearchError], kind: str
) -> None:
    path = tmp_path / "given.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert callable(read)
    with pytest.raises(error) as caught:
        read(path)
    assert path.name in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 << 10  # KiB


def test_a_tokenizer_that_has_no_end_is_refused(tmp_path: Path) -> None:
    from trainer.corpus.tokenization import parse_tokenizer

    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(CorpusError):
        parse_tokenizer(f"file:{tmp_path / 'tokenizer.json'}")


def test_a_link_is_followed_for_those_who_trust_who_put_it_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("inside")
    (tmp_path / "link").symlink_to("file")
    with os.fdopen(open_regular(tmp_path / "link")) as file:
        assert file.read() == "inside"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link", through_links=False)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path, through_links=False)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_second_name_of_a_file_is_read_only_for_those_who_trust_who_made_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("inside")
    os.link(tmp_path / "secret", tmp_path / "spec.json")
    with os.fdopen(open_regular(tmp_path / "spec.json")) as file:
        assert file.read() == "inside"
    with pytest.raises(OSError) as refused:
        open_regular(tmp_path / "spec.json", through_links=False)
    assert refused.value.errno == errno.EMLINK
