"""Check that a person's prompt templates are sandboxed and bounded, with a clear error for each
mistake."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.proposers.base import ProposerError
from agent.proposers.llm.prompt import SYSTEM, USER, Prompter
from agent.proposers.llm.templates import Template, load_templates
from autoresearch.errors import AutoresearchError, SettingsError
from tests.support.memories import memory_of
from trainer.spec import Budget

NAME = "repair.md.j2"
KNOWN = {NAME: {"why", "max_changes", "items"}}
VALUES = {"why": "it was not JSON", "max_changes": 3, "items": [1, 2]}


def loaded(folder: Path, text: str) -> Template:
    (folder / NAME).write_text(text)
    return load_templates(folder, KNOWN)[NAME]


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__.__mro__[1].__subclasses__()",
        "cycler.__init__.__globals__.os.environ",
        "lipsum.__globals__['os'].popen('id').read()",
        "why | attr('__class__')",
        "'{0.__class__}'.format(why)",
        "items.append(3)",
    ],
)
def test_a_template_reaches_no_python(tmp_path: Path, expression: str) -> None:
    with pytest.raises(AutoresearchError, match=r"repair\.md\.j2"):
        print(loaded(tmp_path, "{{ " + expression + " }}").render(VALUES))


@pytest.mark.parametrize(
    "expression",
    [
        "(knobs | first).parse_raw('x', proto='pickle', allow_pickle=True)",
        "(constraints | first).model_copy()",
        "measure.model_dump()",
        "best.__class__",
    ],
)
def test_a_prompts_variables_are_data_alone(tmp_path: Path, expression: str) -> None:
    for name in (SYSTEM, USER):
        (tmp_path / name).write_text("{% if knobs or best %}{{ " + expression + " }}{% endif %}")
    with pytest.raises(AutoresearchError):
        Prompter(Budget(), directory=tmp_path).prompt(memory_of(5))


def test_an_object_is_never_handed_to_a_template(tmp_path: Path) -> None:
    with pytest.raises(ProposerError):
        loaded(tmp_path, "{{ why }}").render({**VALUES, "why": Budget()})


@pytest.mark.parametrize(
    "text",
    [
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ [0] * 10 ** 12 }}",
        "{{ range(10 ** 9) | list }}",
        "{{ 1 / 0 }}",
        "{{ why ** 2 }}",
        "{{ max_changes.nothing.at_all }}",
        "{% include 'other' %}",
        "{% import 'os' as os %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ why | nothing }}",
        "{% for %}",
        "{{ nothing }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if why %}" * 200 + "{% endif %}" * 200,
    ],
)
def test_whatever_a_template_does_wrong_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(AutoresearchError) as caught:
        loaded(tmp_path, text).render(VALUES)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 500 + len(str(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(st.sampled_from("{}%#|()[]'\" .ab1+-*/~wyhitemsfornd\n"), max_size=60))
def test_any_text_is_a_template_or_one_sentence(tmp_path: Path, text: str) -> None:
    try:
        rendered = loaded(tmp_path, text).render(VALUES)
    except (SettingsError, ProposerError) as error:
        assert str(error).isprintable()
    else:
        assert rendered.endswith("\n")


def test_an_ordinary_template_is_rendered(tmp_path: Path) -> None:
    text = "{% for item in items %}{{ '-' * 3 }} {{ item ** 2 }}\n{% endfor %}{{ 0.0012 | value }}"
    assert loaded(tmp_path, text).render(VALUES) == "--- 1\n--- 4\n0.0012\n"


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.write_text("x" * (2 << 20)),
        lambda path: path.mkdir(),
    ],
)
def test_what_is_no_template_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / NAME)
    with pytest.raises(SettingsError) as raised:
        load_templates(tmp_path, KNOWN)
    assert NAME in str(raised.value)
