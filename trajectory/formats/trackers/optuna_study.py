"""Read a study of Optuna 3 to 5, from its SQLite file or its journal file.

Both hold the same: trials with a state, one value, and parameters in the internal form of their
distributions. Neither needs Optuna, and neither is written to.
"""

import json
from typing import Any, Final

from autoresearch.errors import FormatError
from trajectory.formats.source import ForeignFile, Line, Source
from trajectory.formats.trackers.stores import (
    Recorded,
    Wanted,
    chosen,
    finite,
    foreign_file,
    opened,
)

FORMAT: Final = "optuna"
TABLES = {"studies", "study_directions", "trials", "trial_params", "trial_values"}
_CREATE_STUDY, _DELETE_STUDY, _CREATE_TRIAL, _SET_PARAM, _SET_STATE = 0, 1, 4, 5, 6
"""Operations of a journal file that matter here."""
_COMPLETE, _PRUNED, _FAIL = 1, 2, 3
_STATES = {"COMPLETE": _COMPLETE, "PRUNED": _PRUNED, "FAIL": _FAIL}
_MINIMIZE = 1
MEASURE = "value"


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines is a journal file."""
    try:
        return bool(lines) and {"op_code", "worker_id"} <= lines[0].json_object().keys()
    except ValueError:
        return False


def read_database(source: Source, wanted: Wanted) -> ForeignFile:
    """Read a study from a SQLite file."""
    with opened(source) as database:
        studies = {
            name: number
            for number, name in database.rows("SELECT study_id, study_name FROM studies")
        }
        name = chosen(source, "studies", list(studies), wanted)
        study = studies[name]
        directions = database.rows(
            "SELECT direction FROM study_directions WHERE study_id = ?", study
        )
        _refuse_unless_one([direction == "MINIMIZE" for (direction,) in directions], source)
        runs: dict[int, Recorded] = {}
        order = "FROM trials WHERE study_id = ? ORDER BY number"
        for key, number, state, at in database.rows(
            f"SELECT trial_id, number, state, datetime_start {order}", study
        ):
            runs[key] = _trial(number, _STATES.get(state), at)
        of_study = "WHERE trial_id IN (SELECT trial_id FROM trials WHERE study_id = ?)"
        for key, name, value, text in database.rows(
            "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params "
            f"{of_study} ORDER BY param_id",
            study,
        ):
            runs[key].params[str(name)] = _external(value, text)
        values = database.rows(f"SELECT trial_id, value FROM trial_values {of_study}", study)
        for key, value in values:
            _score(runs[key], value)
        return foreign_file(FORMAT, source, list(runs.values()), Wanted(MEASURE))


def read_journal(source: Source, wanted: Wanted) -> ForeignFile:
    """Read a study from a journal file, leaving out lines that are damaged."""
    studies: dict[str, int] = {}
    directions: dict[int, list[bool]] = {}
    trials: list[tuple[int, Recorded]] = []
    skipped = ForeignFile(format=FORMAT, measure=MEASURE)

    def apply(found: dict[str, Any]) -> None:
        code = found["op_code"]
        if code == _CREATE_STUDY:
            number = len(directions)
            studies[str(found["study_name"])] = number
            directions[number] = [one == _MINIMIZE for one in found["directions"]]
        elif code == _DELETE_STUDY:
            gone = found["study_id"]
            for name in [name for name, number in studies.items() if number == gone]:
                del studies[name]
        elif code == _CREATE_TRIAL:
            run = _trial(len(trials), found.get("state"), found.get("datetime_start"))
            for name, text in (found.get("distributions") or {}).items():
                run.params[name] = _external(found["params"][name], text)
            _score(run, _only(found.get("values")) or found.get("value"))
            trials.append((found["study_id"], run))
        elif code == _SET_PARAM:
            run = trials[found["trial_id"]][1]
            run.params[str(found["param_name"])] = _external(
                found["param_value_internal"], found["distribution"]
            )
        elif code == _SET_STATE:
            run = trials[found["trial_id"]][1]
            state = _trial(0, found["state"], found.get("datetime_start"))
            run.ended, run.why, run.at = state.ended, state.why, run.at or state.at
            _score(run, _only(found.get("values")))

    for line in source.lines():
        try:
            apply(line.json_object())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            skipped.skip(line, f"it is not an operation of Optuna's journal ({error!r:.80})")
    study = studies[chosen(source, "studies", list(studies), wanted)]
    _refuse_unless_one(directions[study], source)
    file = foreign_file(FORMAT, source, [run for of, run in trials if of == study], Wanted(MEASURE))
    file.skipped[:0] = skipped.skipped
    return file


def _trial(number: int, state: int | None, at: object) -> Recorded:
    run = Recorded(f"trial {number}", at=None if at is None else str(at))
    if state != _COMPLETE:
        run.ended = "failed" if state in {_PRUNED, _FAIL} else "running"
        run.why = {_PRUNED: "pruned", _FAIL: "failed"}.get(state or 0, "")
    return run


def _score(run: Recorded, value: object) -> None:
    number = finite(value)
    if number is not None:
        run.metrics[MEASURE] = number


def _only(values: Any) -> Any:
    return values[0] if isinstance(values, list) and values else None


def _external(value: Any, distribution: str) -> Any:
    """Return a parameter's value from its internal form, as its distribution defines it."""
    described = json.loads(distribution)
    name, attributes = str(described["name"]), described["attributes"]
    if name.startswith("Categorical"):
        return attributes["choices"][int(value)]
    return int(value) if name.startswith("Int") else float(value)


def _refuse_unless_one(minimized: list[bool], source: Source) -> None:
    if minimized != [True]:
        what = f"has {len(minimized)} objectives" if len(minimized) != 1 else "is maximized"
        raise FormatError(
            f"the study in {source.path} {what}; import takes one score of which the lower is the "
            "better"
        )
