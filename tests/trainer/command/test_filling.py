"""A command's placeholders receive the values of a trial."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import SpecError
from tests.support.commands import command, command_spec
from trainer.command.filling import filled
from trainer.schema import Budget, TrialSpec

OUT = Path("/campaign/trials/t000001/tmp/work")
VALUES = {"lr": 1e-05, "n_layer": 4, "bias": True, "act": 'a "b" $(c)'}


def told(spec: TrialSpec, threads: int = 2) -> Any:
    assert spec.command is not None
    return filled(spec, spec.command, OUT, threads)


def spec_of(**changes: Any) -> TrialSpec:
    of_spec = {name: changes.pop(name) for name in list(changes) if name in TrialSpec.model_fields}
    return command_spec(values=VALUES, command=command(**changes), **of_spec)


def test_values_stand_where_their_names_stand_in_braces() -> None:
    words = ("/bin/x", "--lr={lr}", "{n_layer}", "{bias}", "{{lr}}", "{act}")
    assert told(spec_of(argv=words)).argv == (
        *("/bin/x", "--lr=1e-05", "4", "True", "{lr}"),
        'a "b" $(c)',
    )


def test_python_is_known_in_every_word() -> None:
    spec = spec_of(argv=("bash", "-c", "exec {python} train.py"), env=(("WITH", "{python}"),))
    found = told(spec)
    assert found.argv[-1] == f"exec {sys.executable} train.py"
    assert found.env["WITH"] == sys.executable


def test_a_truth_is_a_word_or_none() -> None:
    """A switch that is off yields no word at all, rather than an empty one."""
    words = (
        "/bin/x",
        "{bias:--bias|--no-bias}",
        "{bias:--amp}",
        "{bias:|--off}",
        "",
        "-b={bias:y|n}",
    )
    assert told(spec_of(argv=words)).argv[1:] == ("--bias", "--amp", "", "-b=y")
    off = command_spec(values={**VALUES, "bias": False}, command=command(argv=words))
    assert told(off).argv[1:] == ("--no-bias", "--off", "", "-b=n")


def test_what_is_edited_keeps_its_type() -> None:
    edits = (("SEED", "{seed}"), ("DIR", "{out}/x"), ("NAME", "run-{seed}"))
    besides = {"SEED": 7, "DIR": f"{OUT}/x", "NAME": "run-7"}
    spec = spec_of(edits=edits, edited="train.py", seed=7)
    assert told(spec).edits == {**VALUES, **besides}


def test_code_is_edited_and_never_sent() -> None:
    words = ("/bin/x", "{out}")
    filling = told(
        command_spec(
            values={**VALUES, "code.act": "x = 1"},
            command=command(argv=words, edited="train.py", slots_only=True, sent_by="env"),
        )
    )
    assert filling.edits == {"code.act": "x = 1"}
    assert "AR_BIAS" in filling.env
    assert not any("CODE" in name for name in filling.env)


def test_it_is_told_of_its_trial() -> None:
    words = ("/bin/x", "{out}", "{seed}", "{threads}", "{device}", "{steps}", "{horizon}")
    spec = spec_of(argv=words, seed=7, budget=Budget(amount=60), horizon_steps=1000)
    assert told(spec).argv[1:] == (str(OUT), "7", "2", "cpu", "60", "1000")
    without = spec_of(argv=words, budget=Budget(amount=60), horizon_steps=None)
    assert told(without).argv[-1] == "60", "the schedule is the budget"


def test_a_budget_of_another_unit_is_refused_in_a_sentence() -> None:
    spec = spec_of(argv=("/bin/x", "{steps}"), budget=Budget(unit="seconds", amount=30))
    with pytest.raises(SpecError):
        told(spec)


def test_values_are_sent_as_variables() -> None:
    spec = spec_of(argv=("/bin/x",), sent_by="env", env=(("MODE", "seed-{seed}"),), seed=3)
    env = told(spec).env
    assert env["AR_LR"] == "1e-05"
    assert env["AR_ACT"] == 'a "b" $(c)'
    assert env["AR_SEED"] == "3"
    assert env["MODE"] == "seed-3"


@pytest.mark.parametrize(("sent_by", "loads"), [("json", json.loads), ("toml", tomllib.loads)])
def test_values_are_sent_in_a_file(sent_by: str, loads: Any) -> None:
    spec = spec_of(argv=("/bin/x", "--config={values}"), sent_by=sent_by)
    found = told(spec)
    name, text = found.values
    assert found.argv[1] == f"--config={OUT / name}"
    said = loads(text)
    assert {key: said[key] for key in VALUES} == VALUES
    assert said["seed"] == 1
