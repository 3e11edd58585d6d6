"""A sweep that somebody else measured, from its file.

The form is that of the published GB10 sweep (github.com/manavsehgal/ai-field-notes, articles/
baseline-training-loop-on-spark/evidence/sweep_results.json): a JSON object with ``device``,
``model`` (its shape and vocabulary), the steps and those not counted, and ``results``, a row a
point with ``batch_size``, ``seq_len``, ``precision``, ``ok``, ``params_m``, ``mean_step_ms``,
``tokens_per_s`` and ``peak_gpu_mem_gib``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from autoresearch.errors import EnvelopeError, SpecError
from autoresearch.given_file import read_given
from autoresearch.values import Positive, PositiveInt, explain
from trainer.envelope.envelope import Envelope
from trainer.envelope.points import EnvelopePoint, EnvelopeSettings
from trainer.memory.estimate import DeviceLimit
from trainer.spec import Config, make_config

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_SPEED_TOLERANCE = 0.02
"""Tokens/s and step time of a point may differ by so much: rounding."""
_SHAPE = ("n_layer", "n_head", "d_model", "d_ff")


class _Lenient(BaseModel):
    """Another's file may say more."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class _Model(_Lenient):
    vocab_size: PositiveInt
    n_layer: PositiveInt
    n_head: PositiveInt
    d_model: PositiveInt
    d_ff: PositiveInt


class _Row(_Lenient):
    batch_size: PositiveInt
    seq_len: PositiveInt
    precision: str
    ok: bool = True
    error: str = ""
    params_m: Positive | None = None
    mean_step_ms: Positive | None = None
    tokens_per_s: Positive | None = None
    peak_gpu_mem_gib: Positive | None = None
    wall_s: Annotated[float, Field(ge=0)] = 0.0


class _Sweep(_Lenient):
    device: str
    model: _Model
    sweep_steps: PositiveInt
    warmup_steps_excluded_from_mean: Annotated[int, Field(ge=0)] = 0
    results: Annotated[tuple[_Row, ...], Field(min_length=1)]


def read_published(
    path: Path, *, menu: str, menu_sha256: str, base: Config, backend: str, limit: DeviceLimit
) -> Envelope:
    """The envelope of a published sweep, fitted.

    What the file leaves open of the model is taken from the menu's baseline, with notes on what
    the two have apart.

    :param base: the menu's baseline.
    :param limit: of the device that is to be told what fits.
    :raises EnvelopeError: where the file is none of that form, or contradicts itself.
    """
    sweep = _read(path)
    shape = {name: getattr(sweep.model, name) for name in _SHAPE}
    try:
        measured = make_config(base.canonical() | shape | {"n_kv_head": None})
        settings = EnvelopeSettings(
            menu=menu,
            menu_sha256=menu_sha256,
            base=measured,
            vocab_size=sweep.model.vocab_size,
            backend=backend,
            device="cuda",
            steps=sweep.sweep_steps,
            warmup=sweep.warmup_steps_excluded_from_mean,
        )
        points = tuple(_point(row, sweep.device) for row in sweep.results)
    except (ValidationError, SpecError) as error:
        said = explain(error) if isinstance(error, ValidationError) else str(error)
        raise EnvelopeError(f"{path} cannot be taken in: {said}; correct the file") from error
    _refuse_contradictions(path, points)
    found = Envelope.of(settings, limit, points)
    return found.model_copy(update={"notes": (*_departures(base, measured), *found.notes)})


def _read(path: Path) -> _Sweep:
    try:
        return _Sweep.model_validate(_JSON.validate_json(read_given(path)))
    except OSError as error:
        raise EnvelopeError(
            f"{path} cannot be read ({error.strerror}); name the file of a sweep"
        ) from error
    except ValidationError as error:
        raise EnvelopeError(
            f"{path} is no published sweep ({explain(error)[:300]}); it needs device, model, "
            "sweep_steps and results, as docs/envelope.md has them"
        ) from error


def _point(row: _Row, device: str) -> EnvelopePoint:
    fields: dict[str, Any] = {
        "batch_size": row.batch_size,
        "seq_len": row.seq_len,
        "precision": row.precision,
        "status": "ok" if row.ok else "crash",
        "message": row.error,
        "wall_s": row.wall_s,
        "device_name": device,
        "peak_mem_gib": row.peak_gpu_mem_gib,
    }
    if row.ok:
        fields |= {
            "step_ms": row.mean_step_ms,
            "tokens_per_s": row.tokens_per_s,
            "params": round(1e6 * row.params_m) if row.params_m else None,
        }
    return EnvelopePoint.model_validate(fields)


def _refuse_contradictions(path: Path, points: tuple[EnvelopePoint, ...]) -> None:
    for point in points:
        if point.step_ms is None or point.tokens_per_s is None:
            continue
        by_step = 1000 * point.tokens_per_step / point.step_ms
        if abs(by_step / point.tokens_per_s - 1) > _SPEED_TOLERANCE:
            raise EnvelopeError(
                f"{path} contradicts itself at {point.cell}: {point.step_ms:g} ms a step are "
                f"{by_step:,.0f} tokens/s, and it says {point.tokens_per_s:,.0f}; correct the file"
            )


def _departures(base: Config, measured: Config) -> tuple[str, ...]:
    apart = [
        f"{name} {getattr(measured, name)} (the menu's baseline has {getattr(base, name)})"
        for name in _SHAPE
        if getattr(measured, name) != getattr(base, name)
    ]
    return (f"the sweep is of another shape: {', '.join(apart)}",) if apart else ()
