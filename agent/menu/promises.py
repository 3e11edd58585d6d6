"""Check a menu against the trainer's Config, or against the command that it names."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from agent.menu.knobs import Knob, Reading
from agent.menu.trainer_table import BUILT_IN, NAME, TrainerTable, placeholders, refuse
from autoresearch.values import Scalar
from autoresearch.words import CODE, did_you_mean, json_text
from trainer.schema import Budget, Config


def check_names(
    knobs: Mapping[str, Knob], tied: Mapping[str, str], constants: Mapping[str, Scalar]
) -> None:
    """Check that every field of Config is defined once, and nothing else but readable ratios.

    :raises ValueError: one clause that names the key and the fix.
    """
    fields = Config.model_fields
    defined = _each_once({"a knob": knobs, "tied": tied, "a constant": constants})
    for name, what in defined.items():
        is_read = name in knobs and knobs[name].reads is not None
        noun, near = what.removeprefix("a "), did_you_mean(name, fields)
        refuse(
            (is_read and name in fields, f"knob {name} is a field of a config; remove its reads"),
            (
                not is_read and name not in fields,
                f"{noun} {name} is not a field of a config{near}",
            ),
        )
    refuse(
        *(
            (
                field.is_required() and name not in defined,
                f"{name} is not defined; add a [knobs.{name}] table or a constant {name}",
            )
            for name, field in fields.items()
        )
    )


def _each_once(groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return what every name is, and refuse one that is two things."""
    said: dict[str, str] = {}
    for what, names in groups.items():
        for name in names:
            if name in said:
                raise ValueError(f"{name} is both {said[name]} and {what}; remove one of the two")
            said[name] = what
    return said


def check_values(
    knobs: Mapping[str, Knob], constants: Mapping[str, Scalar], complete: Mapping[str, Scalar]
) -> None:
    """Check that the trainer accepts every constant and the bounds of every knob unchanged.

    :param complete: all fields of the menu's baseline.
    :raises ValueError: one clause that names the knob and the value.
    """
    values = [(f"constant {name}", name, value) for name, value in constants.items()]
    own = (knob for knob in knobs.values() if knob.reads is None)
    values += [(f"knob {one.name}", one.name, value) for one in own for value in one.domain.ends]
    for what, name, value in values:
        if problem := _field_problem(complete, name, value):
            raise ValueError(f"{what} = {json_text(value)} cannot be trained: {problem}")


def check_readings(
    knobs: Mapping[str, Knob], readings: Mapping[str, Reading], baseline: Config
) -> None:
    """Check that ratios read from the baseline equal their defaults.

    :raises ValueError: one clause that names the knob and both values.
    """
    for name, reading in readings.items():
        default, found = knobs[name].default, reading.value(baseline)
        if found != default:
            raise ValueError(
                f"knob {name} has the default {json_text(default)} and the baseline made with it "
                f"reads {json_text(found)}; correct its reads or the ties"
            )


def check_command(
    trainer: TrainerTable,
    knobs: Mapping[str, Knob],
    tied: Mapping[str, str],
    constants: Mapping[str, Scalar],
    budget: Budget,
) -> None:
    """Check that names are defined once, and that every knob and the budget reach the command.

    :raises ValueError: one clause that names the key and the fix.
    """
    _each_once({"a knob": knobs, "tied": tied, "a constant": constants, "in edits": trainer.edits})
    refuse(
        *(
            (
                knob.reads is not None,
                f"knob {name} has reads, but a command's knobs are not fields of a config; remove "
                "its reads",
            )
            for name, knob in knobs.items()
        )
    )
    defaults = {name: knob.default for name, knob in knobs.items()}
    truths = [name for name, one in {**defaults, **constants}.items() if isinstance(one, bool)]
    own = [name for name in knobs if not name.startswith(CODE)]
    _check_braces(trainer, own, [*tied, *constants], truths)
    if not trainer.tells(budget.unit):
        raise ValueError(
            f"the budget of {budget} does not reach the command; add {{{budget.unit}}} to it, or "
            'write budget = "1 run" for a script that ends by itself'
        )


def _check_braces(
    trainer: TrainerTable, knobs: Collection[str], others: Iterable[str], truths: Collection[str]
) -> None:
    """Check that every name in braces is known, and that every knob reaches the command.

    :param others: tied fields and constants.
    :param truths: the knobs and constants that are true or false.
    :raises ValueError: one clause that names the fault and the fix.
    """
    known = [*knobs, *others]
    asked = sorted(pair for text in trainer.texts for pair in placeholders(text))
    for name in known:
        is_taken = name in BUILT_IN or name == "budget_steps"
        clause = "cannot be a name in a command; use letters, digits and _"
        refuse(
            (not NAME.fullmatch(name), f"{json_text(name)} {clause}"),
            (is_taken, f"{name} is a built-in placeholder; give it another name"),
        )
    for name, words in asked:
        near = did_you_mean(name, [*known, *BUILT_IN])
        refuse(
            (
                name not in (*known, *BUILT_IN),
                f"the command uses {{{name}}}, which is not defined{near}",
            ),
            (
                words and name not in truths,
                f"{{{name}:{words}}} has words for true and false, and {name} is neither; "
                f"write {{{name}}}",
            ),
        )
    has_file, is_sent = trainer.values in {"json", "toml"}, trainer.set_by != "edit"
    missed = next((name for name in knobs if name not in trainer.asked), "")
    refuse(
        (
            not has_file and any(name == "values" for name, _ in asked),
            '{values} is a file; add values = "json" or "toml"',
        ),
        (
            is_sent and has_file and "values" not in trainer.asked,
            f"values are written to a file of {trainer.values} that the command does not take; "
            "add {values} to it",
        ),
        (
            is_sent and trainer.values == "args" and missed,
            f"knob {missed} does not reach the command; add {{{missed}}} to it, or remove the knob",
        ),
    )


def _field_problem(complete: Mapping[str, Any], name: str, value: Any) -> str | None:
    try:
        trained = getattr(Config.model_validate({**complete, name: value}), name)
    except ValidationError as error:
        problems = [item for item in error.errors(include_url=False) if item["loc"] == (name,)]
        # Relations between fields are checked by the constraints, not for a single knob.
        return problems[0]["msg"] if problems else None
    if trained != value or isinstance(trained, bool) != isinstance(value, bool):
        return f"the trainer would convert it to {json_text(trained)}; write that"
    return None
