import os
from pathlib import Path

import pytest

from agent.settings.environment import (
    check_tracker_secrets,
    data_dir,
    read_environment,
    state_dir,
)
from autoresearch.errors import SettingsError
from trainer.machine.environment import cache_folder

SECRETS = ["AUTORESEARCH_LLM_API_KEY", "AUTORESEARCH_SERVE_TOKEN"]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", " "])
def test_a_secret_loses_the_end_of_its_line(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    for name in (*SECRETS, "WANDB_API_KEY"):
        monkeypatch.setenv(name, f"sk-0123456789{end}")
    monkeypatch.setenv("AUTORESEARCH_HISTORY_URL", f"sqlite:///x.db{end}")
    environment = read_environment()
    for secret in (environment.llm_api_key, environment.serve_token):
        assert secret is not None
        assert secret.get_secret_value() == "sk-0123456789"
    assert environment.history_url == "sqlite:///x.db"
    check_tracker_secrets("wandb")
    assert os.environ["WANDB_API_KEY"] == "sk-0123456789"


@pytest.mark.parametrize("value", ["“sk-0123456789”", "sk-0123\t456789", "sk-0123\r\n456789"])
def test_a_secret_no_header_takes_is_hidden(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    for name in SECRETS:
        with monkeypatch.context() as inner:
            inner.setenv(name, value)
            with pytest.raises(SettingsError) as caught:
                read_environment()
        assert name in str(caught.value)
        assert "0123" not in str(caught.value)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", value)
    with pytest.raises(SettingsError, match="MLFLOW_TRACKING_TOKEN") as caught:
        check_tracker_secrets("mlflow")
    assert "0123" not in str(caught.value)


@pytest.mark.parametrize("folder", ["", "relative/folder"])
def test_an_empty_or_relative_xdg_folder_is_ignored(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AUTORESEARCH_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("XDG_STATE_HOME", folder)
    assert data_dir() == cache_folder() == tmp_path / ".cache" / "autoresearch"
    assert state_dir() == tmp_path / ".local" / "state" / "autoresearch"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_dir() == cache_folder() == tmp_path / "cache" / "autoresearch"
