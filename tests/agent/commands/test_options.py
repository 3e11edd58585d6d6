from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from agent.cli import ENTRIES
from agent.commands.night.loop import PANELS
from agent.commands.options import takes
from agent.settings.campaign import CampaignSettings
from autoresearch.options import AsOption, set_fields
from autoresearch.values import Frozen, PositiveInt


def number_of(text: str) -> int:
    if not text.startswith("no. "):
        raise ValueError(f"{text!r} has no number")
    return int(text[4:])


class Asked(Frozen):
    """Hold one field of each kind."""

    count: Annotated[PositiveInt, Field(description="How many.")] = 3
    share: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, Field(description="How much."), AsOption("--of")
    ] = None
    colour: Annotated[Literal["red", "blue"], Field(description="Which.")] = "red"
    brisk: Annotated[bool, Field(description="Whether.")] = True
    page: Annotated[PositiveInt, Field(description="Where."), AsOption("--at", read=number_of)] = 1
    inner: int = 0
    """A field without an option."""


def run(command: Any, *words: str) -> tuple[int, str]:
    app = typer.Typer(add_completion=False)
    app.command()(command)
    done = CliRunner().invoke(app, list(words), terminal_width=200)
    return done.exit_code, done.output


@takes(Asked)
def whole(*, before: int = 0, asked: Asked, after: int = 0) -> None:
    print(before, asked, after)


@takes(Asked, {"First": ["brisk", "colour"]}, partly=True)
def some(*, asked: dict[str, Any]) -> None:
    print(asked)


def test_a_value_is_made_of_options_and_defaults() -> None:
    assert run(whole) == (0, f"0 {Asked()} 0\n")
    words = ["--count=5", "--of=0.5", "--colour=blue", "--no-brisk", "--at=no. 7", "--after=1"]
    made = Asked(count=5, share=0.5, colour="blue", brisk=False, page=7)
    assert run(whole, *words) == (0, f"0 {made} 1\n")


def test_some_of_it_is_what_was_given() -> None:
    assert run(some) == (0, "{}\n")
    given = {"share": 0.0, "brisk": False, "page": 2}
    assert run(some, "--of=0", "--no-brisk", "--at=no. 2") == (0, f"{given}\n")


@pytest.mark.parametrize("word", ["--count=0", "--of=1.5", "--colour=green", "--at=7", "--inner=1"])
def test_what_it_cannot_be_is_a_usage_error(word: str) -> None:
    assert run(whole, word)[0] == 2


def test_what_has_no_default_must_be_given() -> None:
    class Needy(Frozen):
        name: str = Field(description="Whose.")

    @takes(Needy)
    def needy(*, asked: Frozen) -> None:
        print(asked)

    assert run(needy, "--name=mine") == (0, f"{Needy(name='mine')}\n")
    assert run(needy)[0] == 2


def test_every_setting_that_has_a_help_is_an_option_of_the_loop_or_of_set() -> None:
    options = {option.name: option for option in ENTRIES["loop"].load().params}
    by_set = set_fields(CampaignSettings)
    described = {
        n: f.description
        for n, f in CampaignSettings.model_fields.items()
        if f.description and n not in by_set
    }
    assert CampaignSettings.model_fields.keys() - described.keys() == {"heldout_bytes", *by_set}
    assert not options.keys() & by_set
    for name, description in described.items():
        assert (options[name].help or "").startswith(description or "")


def test_every_option_of_the_loop_is_in_one_panel() -> None:
    names = [name for panel in PANELS.values() for name in panel]
    assert len(names) == len(set(names))
    assert set(names) == {option.name for option in ENTRIES["loop"].load().params}
