from pathlib import Path

import pytest

from agent.proposers.base import ProposerError
from agent.proposers.llm.completions import Conversations, Message, messages_sha256
from autoresearch.errors import MachineryError
from tests.support.endpoints import model_at
from tests.support.memories import memory_of, raw
from tests.support.openai_server import OpenAIServer, refuses, says

PROMPT = (Message("system", "s"), Message("user", "ü"))


def test_a_file_that_was_changed_is_not_taken_for_what_was_said(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    sha256 = messages_sha256(PROMPT)
    for content in ('[{"content": "other", "role": "user"}]', "{torn", "[]"):
        (tmp_path / "prompts").mkdir(exist_ok=True)
        (tmp_path / "prompts" / f"{sha256}.json").write_text(content)
        assert kept.read(sha256) is None


def test_a_turn_is_kept_whole_with_its_repairs_whatever_comes_of_it(tmp_path: Path) -> None:
    kept = Conversations(tmp_path)
    replies = [says(raw({"lr": 3})), says(raw({"lr": 0.00413}))]
    with OpenAIServer(replies) as server:
        record = model_at(server, kept=kept).propose(memory_of(5)).record
    assert record.prompt_sha256 is not None
    sent = kept.read(record.prompt_sha256)
    assert sent is not None
    assert [message.role for message in sent] == ["system", "user", "assistant", "user"]
    assert messages_sha256(sent[:2]) == record.prompt_sha256
    with OpenAIServer([refuses(401)]) as server, pytest.raises(ProposerError) as raised:
        model_at(server, kept=kept).propose(memory_of(6))
    assert raised.value.prompt_sha256 is not None
    assert len(kept.read(raised.value.prompt_sha256) or ()) == 2


def test_a_disk_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MachineryError):
        Conversations(tmp_path / "file").keep(PROMPT, PROMPT)
