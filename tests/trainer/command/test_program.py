"""The program a command starts with is found, and resolved if it is a shim."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from autoresearch.errors import SpecError
from tests.support.commands import command, command_spec, script
from trainer.command.program import environment_of, environments_in, find_program
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import CommandOk, TrialFailed

SHIM = """#!/bin/sh
# Like a version manager's: its own file, or one of the directory, names the Python, also by a path.
chosen=$(cat "$PWD/.version" 2>/dev/null || cat "{root}/version") || exit 126
case "$chosen" in
    path:*) exec "$PWD/${{chosen#path:}}" "$@" ;;
esac
exec "$(cat "{root}/versions/$chosen")" "$@"
"""
BASE = Path(os.path.realpath(sys.executable))


@pytest.fixture
def shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of shims, first on PATH.

    Its manager uses ``usual`` for this Python's own base.
    """
    root = tmp_path / "manager"
    script(root / "versions", str(BASE), "usual")
    script(root, "usual", "version")
    for name in ("python", "torchrun"):
        (script(root / "shims", SHIM.format(root=root), name) / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'shims'}{os.pathsep}{os.environ['PATH']}")
    return root / "shims"


def ran(tmp_path: Path, program: Path, directory: Path) -> CommandOk | TrialFailed:
    programs = tuple(map(str, environment_of(program, directory)))
    told = command(argv=(str(program), "train.py"), directory=str(directory), programs=programs)
    with LocalExecutor(entry=COMMAND_ENTRY) as executor:
        trial = tmp_path / "campaign" / "trials" / "t000001"
        result = executor.submit(command_spec(command=told), trial).result().result
    assert isinstance(result, CommandOk | TrialFailed)
    return result


@pytest.mark.skipif(Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial")
def test_trials_start_the_python_that_a_shim_means(shims: Path, tmp_path: Path) -> None:
    own = script(tmp_path / "own", "print('val loss 1.5')")
    program = find_program("python", own)
    assert program == BASE
    result = ran(tmp_path / "a", program, own)
    assert isinstance(result, CommandOk), result
    assert result.score == 1.5
    # The shim itself fails there, for whoever starts it.
    refused = ran(tmp_path / "b", shims / "python", own)
    assert isinstance(refused, TrialFailed)


def leaves_a_mark(own: Path) -> Path:
    """Write a Python of the script's own that leaves a file when it starts."""
    script(own, f"#!/bin/sh\ntouch '{own}/began'\necho '{BASE}'\n", "python")
    (own / "python").chmod(0o755)
    return own / "began"


def test_no_file_of_the_script_tells_a_shim_what_to_start(shims: Path, tmp_path: Path) -> None:
    own = script(tmp_path / "own", "print(1)")
    began = leaves_a_mark(own)
    script(own, "path:python", ".version")
    assert find_program("python", own) == BASE
    assert find_program(str(shims / "python"), own) == BASE
    assert not began.exists()


@pytest.mark.parametrize("name", [".python-version", ".tool-versions", "mise.toml"])
def test_where_a_file_may_choose_the_version_the_python_s_path_is_needed(
    shims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own = script(tmp_path / "home/project/own", "print(1)")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    chosen = script(own.parent, "3.11", name) / name
    with pytest.raises(SpecError):
        find_program("python", own)
    chosen.rename(own.parent.parent / name)  # in the home it is the user's default
    assert find_program("python", own) == BASE


@pytest.mark.parametrize("through", ["PATH", "PYTHONPATH"])
def test_a_shim_starts_nothing_below_the_script_s_directory(
    shims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    own = script(tmp_path / "own", "print(1)")
    began = leaves_a_mark(own)
    if through == "PATH":
        # like pyenv's for the version "system"
        script(shims, '#!/bin/sh\nPATH=${PATH#*shims:} exec python "$@"\n', "python")
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, (shims, own, BASE.parent))))
    else:
        script(own, f"open({str(began)!r}, 'w')", "sitecustomize.py")
        monkeypatch.setenv("PYTHONPATH", str(own))
    assert find_program("python", own) == BASE.with_name(
        "python" if through == "PATH" else BASE.name
    )
    assert not began.exists()


def test_an_answer_below_the_script_s_directory_is_refused(shims: Path, tmp_path: Path) -> None:
    own = script(tmp_path / "own", "print(1)")
    leaves_a_mark(own)
    script(shims, f"#!/bin/sh\necho '{own}/python'\n", "python")
    with pytest.raises(SpecError):
        find_program("python", own)


def test_a_shim_of_nothing_is_refused(shims: Path, tmp_path: Path) -> None:
    own = script(tmp_path / "own", "print(1)")
    with pytest.raises(SpecError):
        find_program("torchrun", own)
    script(shims.parent, "none", "version")
    with pytest.raises(SpecError):
        find_program("python", own)


def test_a_python_of_one_s_own_is_not_asked_who_it_is(tmp_path: Path) -> None:
    """Running it may start training, and it may set what a plain Python would not."""
    own = script(tmp_path / "own", "#!/bin/sh\ntouch began\n", "python_ddp.sh")
    for name in ("python3", "run.sh"):
        script(own, "#!/bin/sh\ntouch began\n", name)
    for name in ("python_ddp.sh", "python3", "run.sh"):
        (own / name).chmod(0o755)
        program = find_program(f"./{name}", own)
        assert program == own / name
        assert environment_of(program, own) == (program,)
    assert not list(tmp_path.rglob("began"))


def test_a_link_to_a_manager_is_a_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shims of mise are links to mise itself."""
    own = script(tmp_path / "own", "print(1)")
    manager = script(tmp_path, f"#!/bin/sh\nexec '{BASE}' \"$@\"\n", "mise") / "mise"
    manager.chmod(0o755)
    (tmp_path / "shims").mkdir()
    for name in ("python", "torchrun"):
        (tmp_path / "shims" / name).symlink_to(manager)
    (tmp_path / "shims" / "python3").symlink_to("/bin/true")  # neither a script nor a Python
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}{os.pathsep}{os.environ['PATH']}")
    assert find_program("python", own) == BASE
    for name in ("python3", "torchrun"):
        with pytest.raises(SpecError, match=f"{name} is a shim"):
            find_program(name, own)


def test_no_program_of_the_script_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule covers a program that a menu names, a Python beside it, and one found through PATH
    or a link."""
    own = script(tmp_path / "own", "#!/bin/sh\necho val loss 1", "run.sh")
    binary = tmp_path / "made" / "python"  # not a script: a link to a program that leaves a mark
    script(tmp_path / "made", f"#!{sys.executable}\nopen('{tmp_path}/began', 'w')\n", "python")
    for name in ("run.sh", "python", "python3", "shims/python"):
        (own / name).parent.mkdir(exist_ok=True)
        if name != "run.sh":
            shutil.copy(binary, own / name)
        (own / name).chmod(0o755)
    (tmp_path / "linked").symlink_to(own)
    monkeypatch.setenv("PATH", f"{tmp_path / 'linked'}{os.pathsep}{os.environ['PATH']}")
    for word in ("./run.sh", "./python", "python3", "python", "./shims/python"):
        environment_of(find_program(word, own), own)
    binary.chmod(0o755)
    with pytest.raises(SpecError):  # a shim that only the menu names
        find_program(str(binary), own)
    assert not (tmp_path / "began").exists()


def test_a_compiled_python_of_one_s_own_is_not_started(tmp_path: Path) -> None:
    """Its environment comes from the files beside it. What these name outside the script's
    directory is open only if the environment lies outside, too, and never a directory of keys."""
    own = script(tmp_path / "own/.venv", "home = /nowhere/bin", "pyvenv.cfg").parent
    packages = script(own / ".venv/lib/python3/site-packages", "", "a.py")
    added, inside = script(tmp_path / "added", "", "b.py"), script(own / "src", "", "c.py")
    lines = f"import os\n{added}\n{inside}\n{Path.home()}\n{Path.home()}/.ssh\n"
    script(packages, lines, "x.pth")
    (own / ".venv/bin").mkdir()
    python = own / ".venv/bin/python"
    python.write_bytes(b"\x7fELF no program")
    python.chmod(0o755)
    found = environment_of(find_program("./.venv/bin/python", own), own)
    assert {python, own / ".venv/lib", inside} <= set(found)
    assert added not in found
    assert set(environments_in(own)) == set(found)
    found = environment_of(python, tmp_path / "another")
    assert {python, own / ".venv/lib", inside, added} <= set(found)
    assert not any(path == Path.home() or ".ssh" in path.parts for path in found)
