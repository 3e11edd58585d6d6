"""Check the defaults of docker-compose.yml, which no machine without NVIDIA's images can start."""

import re
from typing import Any

import yaml

from agent.menu.files import load_menu
from agent.session.machine_checks import SHARED_LIMIT
from agent.settings.campaign import Policy
from funnel.targets.architecture import load_target
from funnel.targets.proxies import ShapeCheck
from tests.support.places import ROOT


def service(name: str) -> Any:
    """Return a service with every variable at its default."""
    text = (ROOT / "docker-compose.yml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))["services"][name]


def test_the_loop_searches_a_proxy_whose_shape_a_large_run_would_use() -> None:
    (menu,) = (each for each in service("autoresearch")["command"] if each.startswith("--menu="))
    assert not ShapeCheck.of(load_menu(menu.partition("=")[2]), load_target("llama-7b")).at_defaults


def test_the_model_server_is_pinned_and_fits_beside_training() -> None:
    nim = service("nim")
    assert re.fullmatch(r"\d+\.\d+[\d.]*", nim["image"].rpartition(":")[2])
    assert float(nim["environment"]["NIM_GPU_MEM_FRACTION"]) <= SHARED_LIMIT / 2
    longest = int(nim["environment"]["NIM_MAX_MODEL_LEN"])
    assert 2 * Policy().prompt_tokens <= longest < 131_072
