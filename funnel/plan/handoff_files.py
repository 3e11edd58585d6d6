"""Render the files of a launch plan from the templates beside this module."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from agent.menu.files import menu_of
from autoresearch.words import changes_text, duration_text, scalar_text
from funnel.attribution.worth import estimate_text
from funnel.forecast.band import BothRuns, Forecast, read_run
from funnel.plan.bundle import json_bytes
from funnel.plan.checks import (
    FP8_TOLERANCE,
    LAYOUT_TOLERANCE,
    NCCL_SHARE,
    SHORT_STEPS,
    SHORT_WARMUP,
    PreflightLimits,
)
from funnel.plan.handoff import Handoff
from funnel.plan.megatron_flags import (
    CHECKED_AGAINST,
    MUP_SINCE,
    flag_words,
    precision_flags,
)
from funnel.plan.projection import CODE_FILE, code_patch
from funnel.plan.recipe import Recipe
from funnel.plan.step_time import FABRIC_SHARE
from funnel.plan.utilisation import ERROR
from funnel.stress.fidelity_words import fidelity_lines
from funnel.targets.shape import size_text
from trainer.schema import difference
from trajectory.report.canvas import BASE, FAILED, Picture, sheet
from trajectory.report.figures.curves import draw_long_runs, long_run
from trajectory.report.svg import draw

FORECAST_FILE = "forecast.json"
PLAN_FILE = "plan.json"
HALF_LR_FILE = "pretrain_gpt_half_lr.py"
ASYNC_FLAGS = ("--async-save", "--use-persistent-ckpt-worker")
"""Flags of an asynchronous save.

Megatron-LM ignores either without the other, and both together need another package.
"""
_FILES = resources.files("funnel.plan")


def handoff_files(plan: Handoff, out: Path, *, anyway: bool = False) -> dict[str, bytes]:
    """Return the content of each file in the plan's directory, by name, without the manifest.

    :param out: path of the directory, as the pages show it.
    :param anyway: whether to write the scripts although the verdict is DO NOT LAUNCH.
    """
    has_scripts = anyway or plan.verdict != "DO NOT LAUNCH"
    values, forecast = _values(plan, out) | {"has_scripts": has_scripts}, plan.forecast
    files = {
        "README.md": _rendered("README.md.j2", plan.winner, values),
        PLAN_FILE: json_bytes(plan_json(plan)),
        "preflight.sh": _rendered("preflight.sh.j2", plan.winner, values),
        "run.sh": _rendered("run.sh.j2", plan.winner, values),
        "torchrun_line.sh": _rendered("torchrun_line.sh.j2", plan.winner, values),
    }
    if values["has_curves"]:
        files |= draw(lambda: draw_long_runs(values["long_runs"])).files
    if forecast is not None:
        files[FORECAST_FILE] = json_bytes(forecast.model_dump(mode="json"))
        files |= draw(lambda: forecast_picture(forecast)).files
    if plan.winner.projection.source.code:
        files[CODE_FILE] = code_patch(plan.winner.projection.source).encode()
    for recipe in plan.recipes:
        files[recipe.file] = json_bytes(recipe.model_dump(mode="json", exclude={"layouts"}))
        files[recipe.script] = _rendered("launch_megatron.sh.j2", recipe, values)
        if recipe.is_continuation:
            files[HALF_LR_FILE] = _rendered(f"{HALF_LR_FILE}.j2", recipe, values)
    if not has_scripts:
        files = {name: text for name, text in files.items() if not name.endswith(".sh")}
    return files


def plan_json(plan: Handoff) -> dict[str, object]:
    """Return the plan as JSON values, without the recipes and the forecast, which have their own
    files."""
    case, winner = plan.case, plan.winner
    return {
        "schema_version": 1,
        "campaign": {"id": case.row.id, "directory": str(case.directory)},
        "search": case.search.model_dump(mode="json"),
        "target": plan.booking.target.model_dump(mode="json"),
        "cluster": plan.booking.cluster.model_dump(mode="json"),
        "layout": winner.memory.model_dump(mode="json")
        | {"total_gb": winner.memory.total_gb, "bubble": winner.layout.bubble},
        "layouts": [
            use.model_dump(mode="json")
            | {
                "total_gb": use.total_gb,
                "fits": use.fits,
                "bubble": use.layout.bubble,
                "usable": use.is_usable,
            }
            for use in winner.layouts
        ],
        "schedule": winner.schedule.model_dump(mode="json"),
        "run": plan.run.model_dump(mode="json"),
        "compute": plan.booking.compute.model_dump(mode="json"),
        "checkpoints": winner.checkpoints.model_dump(mode="json"),
        "recipes": [
            {"file": recipe.file, "script": recipe.script, "role": recipe.role, "why": recipe.why}
            for recipe in plan.recipes
        ],
        "finalists": [candidate.standing.model_dump(mode="json") for candidate in case.candidates],
        "preflight": [check.model_dump(mode="json") for check in plan.checks],
        "forecast": FORECAST_FILE if plan.forecast else None,
        "money": plan.money.as_json(),
        "changes": [change.model_dump(mode="json") for change in plan.changes],
        "confirmed": case.confirmed[1].model_dump(mode="json") if case.confirmed else None,
        "attribution": plan.attribution.model_dump(mode="json") if plan.attribution else None,
        "verdict": plan.verdict,
        "reasons": [reason.model_dump(mode="json") for reason in plan.reasons],
    }


def read_planned(path: Path) -> tuple[BothRuns, Forecast | None]:
    """Return the run of a launch plan, and its forecast if it has one.

    :param path: the plan's directory, or its ``forecast.json`` alone.
    :raises HandoffError: if there is no plan, or it cannot be read.
    """
    file = path if path.is_file() else path / FORECAST_FILE
    run = read_run(file if file.exists() else path / PLAN_FILE)
    return run, run if isinstance(run, Forecast) else None


_FILTERS: dict[str, Callable[..., str]] = {
    "size": size_text,
    "value": scalar_text,
    "changes": changes_text,
    "duration": duration_text,
    "estimate": estimate_text,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
}
_CONSTANTS: dict[str, Any] = {
    "mup_since": MUP_SINCE,
    "half_lr_file": HALF_LR_FILE,
    "bf16": flag_words(precision_flags("bf16")),
    "fp8": flag_words(precision_flags("fp8")),
    "nccl_share": NCCL_SHARE,
    "fp8_tolerance": FP8_TOLERANCE,
    "layout_tolerance": LAYOUT_TOLERANCE,
    "speed_tolerance": ERROR,
    "fabric_share": FABRIC_SHARE,
    "short_steps": SHORT_STEPS,
    "short_warmup": SHORT_WARMUP,
    "async_flags": ASYNC_FLAGS,
    "difference": difference,
    "flag_words": flag_words,
}
"""Values that the templates have in every plan."""


def _values(plan: Handoff, out: Path) -> dict[str, Any]:
    """Return the values that the templates of one plan may use."""
    case, winner = plan.case, plan.winner
    shown = (runs for runs in case.long_runs if any(row.purpose != "spread" for row in runs.rows))
    long_runs = [long_run(runs, None, case.curve) for runs in shown]
    return {
        "plan": plan,
        "long_runs": long_runs,
        "has_curves": any(run.curve for run in long_runs),
        "out": out,
        "case": case,
        "search": case.search,
        "target": plan.booking.target,
        "cluster": plan.booking.cluster,
        "booking": plan.booking,
        "compute": plan.booking.compute,
        "forecast": plan.forecast,
        "money": plan.money,
        "winner": winner,
        "campaign_id": " ".join(case.row.id.split()),
        "checked_against": CHECKED_AGAINST[winner.projection.lr_rule],
        **_CONSTANTS,
        "baseline": menu_of(case.row).baseline,
        "fidelity": list(fidelity_lines(case.ranking_test)) if case.ranking_test else [],
        **PreflightLimits.of(winner, plan.booking).model_dump(),
    }


def _rendered(name: str, recipe: Recipe, values: dict[str, Any]) -> bytes:
    """Render a template for one recipe."""
    environment = Environment(
        loader=FunctionLoader(lambda name: (_FILES / "templates" / name).read_text("utf-8")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= _FILTERS
    own = {
        "recipe": recipe,
        "step_s": recipe.schedule.tokens_per_step / values["compute"].tokens_per_s,
        "layout": recipe.layout,
        "save_flags": flag_words(recipe.save_flags),
        "words": flag_words(recipe.flags),
    }
    return environment.get_template(name).render(values | own).encode()


def forecast_picture(forecast: Forecast) -> Picture:
    """Draw the forecast."""
    figure = sheet(3.9)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(
        lambda tokens, _: size_text(round(tokens)) if tokens >= 1 else ""
    )
    axes.xaxis.set_minor_formatter(lambda _tokens, _: "")
    points = forecast.points
    tokens, color = [point.tokens for point in points], BASE.light
    low, high = [point.low_bpb for point in points], [point.high_bpb for point in points]
    axes.fill_between(tokens, low, high, color=color, alpha=0.25, linewidth=0, label="forecast")
    middle = [point.middle_bpb for point in points]
    axes.plot(tokens, middle, color=color, linestyle="--", linewidth=1, label="its middle")
    if tokens[0] <= forecast.first_day_tokens <= tokens[-1]:
        axes.axvline(forecast.first_day_tokens, color=FAILED.light, linestyle=":", label="24 h")
    axes.set_xlabel("training tokens")
    axes.set_ylabel("training loss, bits per byte")
    axes.legend(loc="best")
    return Picture("forecast", "The forecast of the large run's training loss.", figure)
