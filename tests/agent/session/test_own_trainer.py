import sys
from pathlib import Path

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.menu.trainer_table import TrainerTable
from agent.session.own_trainer import OwnTrainer, command_of, environments_above
from autoresearch.errors import MenuError, SandboxError, SpecError
from tests.support.commands import script
from tests.support.own_menus import OWN_MENU
from tests.support.present import known


def menu_of(more: str, *, program: str = "{python}", script: str = "train.py") -> str:
    text = OWN_MENU.replace("{python}", program).replace("train.py", script)
    return text.replace("[knobs.lr]", f"{more}\n[knobs.lr]")


def table(more: str, **changed: str) -> TrainerTable:
    return known(parse_menu(menu_of(more, **changed), "own").trainer)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    script(tmp_path / "checkout" / "scripts", "lr = 1.0")
    return script(tmp_path / "checkout", "lr = 1.0")


def test_what_is_absent_or_home_is_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in (table("", program="pyhton"), table('reads = ["nothing"]')):
        with pytest.raises(SpecError):
            command_of(missing, checkout)
    with pytest.raises(SpecError):
        command_of(table(""), checkout / "nowhere")
    monkeypatch.setenv("HOME", str(checkout / "home"))
    with pytest.raises(SandboxError):
        command_of(table(""), checkout)


def test_main_is_called_by_our_own_python_with_what_can_be_preloaded(checkout: Path) -> None:
    main = 'main = "main"'
    assert command_of(table(main), checkout).main == "main"
    assert command_of(table(main, program=sys.executable), checkout).main == "main"
    assert command_of(table(f'{main}\npreload = ["email.mime"]'), checkout).preload
    other = checkout.parent / "python3"
    other.symlink_to(sys.executable)
    for refused in (
        table(main, program=str(other)),
        table(f'{main}\npreload = ["no_such_module"]'),
    ):
        with pytest.raises(SpecError):
            command_of(refused, checkout)
    with pytest.raises(MenuError):
        table(f'{main}\npreload = ["os:abort"]')


def test_an_edited_script_lies_below_its_directory(checkout: Path) -> None:
    for where in ("../checkout/train.py", str(checkout / "train.py")):
        with pytest.raises(SpecError):
            command_of(table('set_by = "edit"', script=where), checkout)
        assert command_of(table("", script=where), checkout).edited is None
    below = table('set_by = "edit"', script="scripts/train.py")
    assert command_of(below, checkout).edited == "scripts/train.py"


def test_steps_in_a_file_of_values_are_believed_only_where_the_menu_says_them() -> None:
    told = menu_of('values = "env"')
    assert str(parse_menu(told, "own").campaign.budget) == "1 run"
    said = parse_menu(f'{told}[campaign]\nbudget = "60 steps"\n', "own")
    assert str(said.campaign.budget) == "60 steps"


def test_a_directory_that_trials_cannot_have_is_refused(checkout: Path, tmp_path: Path) -> None:
    menu = checkout / "own.toml"
    menu.write_text(menu_of('reads = [".."]'))
    with pytest.raises(MenuError):
        OwnTrainer.of(str(menu), load_menu(str(menu)), tmp_path / "runs")
    menu.write_text(menu_of(""))
    assert OwnTrainer.of(str(menu), load_menu(str(menu)), tmp_path / "runs")
    script(checkout, "", "campaign.lock")
    with pytest.raises(MenuError):
        OwnTrainer.of(str(menu), load_menu(str(menu)), tmp_path / "runs")


def test_data_in_the_home_is_read_and_credentials_are_not(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    script(home / ".ssh", "", "config")
    script(home / ".aws", "", "credentials")
    script(home / ".config" / "gh", "", "hosts.yml")
    script(home, "", ".netrc")
    script(checkout / "data", "", "id_rsa")
    (checkout / "ln").symlink_to(home / ".aws")
    secret = ("~", "~/.ssh", "~/.ssh/config", "~/.aws", "~/.netrc", "~/.config", "data/id_rsa")
    for read in (*secret, "ln"):
        with pytest.raises(SandboxError):
            command_of(table(f"reads = [{read!r}]"), checkout)
    data = script(home / ".cache" / "huggingface" / "hub", "1", "tokens.bin")
    read = command_of(table('reads = ["~/.cache/huggingface/hub"]'), checkout).reads
    assert read == (str(data),)


def test_the_python_of_a_command_is_named_with_the_nearest_environment(
    checkout: Path, tmp_path: Path
) -> None:
    menu = checkout / "own.toml"
    menu.write_text(menu_of(""))
    own = known(OwnTrainer.of(str(menu), load_menu(str(menu)), tmp_path / "runs"))
    program = own.command.argv[0]
    assert own.python_text().startswith(f"{program};")
    assert any(program in line for line in own.lines())
    pattern = known(own.table.score.pattern)
    assert not any(pattern in line for line in own.lines())  # the details have it
    assert any(pattern in line for line in own.details())

    beside = tmp_path / "checkout" / ".venv" / "bin" / "python"
    beside.parent.mkdir(parents=True)
    beside.symlink_to(sys.executable)
    assert str(beside) in own.python_text()
    assert environments_above(checkout / "scripts", beside) is None

    menu.write_text(menu_of("", program="sh"))
    other = known(OwnTrainer.of(str(menu), load_menu(str(menu)), tmp_path / "runs"))
    assert other.python_text() == ""
