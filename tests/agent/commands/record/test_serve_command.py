"""`serve` says which packages it lacks."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

from agent.commands.record.serve import PACKAGES, serve
from autoresearch.errors import MachineryError
from autoresearch.program import install_command
from tests.support.places import ROOT


@pytest.mark.parametrize("lacking", PACKAGES)
def test_each_missing_package_is_named(
    lacking: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == lacking else find(name)
    )
    with pytest.raises(MachineryError) as caught:
        serve([tmp_path])
    assert f"needs {lacking}," in str(caught.value)
    assert install_command("serve") in str(caught.value)


def test_they_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {one.partition(">")[0].replace("-", "_") for one in extras["serve"]} == set(PACKAGES)
