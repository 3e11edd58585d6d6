"""Points survive an interruption, lines fit them, and the envelope predicts what fits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import EnvelopeError, MachineryError, SpecError
from tests.support.envelopes import (
    GB10_PEAK_GIB,
    GB10_VOCAB,
    failed,
    gb10_base,
    gb10_envelope,
    gb10_points,
    point,
    settings,
)
from tests.support.executors import InstantExecutor
from tests.support.nvml import FakeDevice, FakeNvml, gb10, not_supported
from tests.support.trials import trial_ok
from trainer.corpus import open_corpus
from trainer.corpus.store import is_intact
from trainer.envelope import (
    Cell,
    DeviceUse,
    Envelope,
    EnvelopePoint,
    FittedMemory,
    MemoryChoice,
    PointsFile,
    cells,
    choose_memory,
    envelope_path,
    fit,
    random_corpus,
    sweep,
    vocabulary_of,
    watched_sweep,
)
from trainer.envelope.grid import Grid
from trainer.envelope.rail import MemoryModel
from trainer.envelope.sweep import POINTS_FILE, counted_step_s
from trainer.executors.base import Finished
from trainer.executors.local import LocalExecutor
from trainer.memory.estimate import AnalyticMemory, DeviceLimit, parameter_count
from trainer.spec import Config, CurvePoint, TrialFailed, TrialSpec
from trainer.telemetry import choose_telemetry
from trainer.telemetry.summary import MeanAndPeak, Tally

# --- the line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "fixed_gib", "per_token_mib"), [("bf16", 2.1, 1.47), ("fp8", 2.7, 1.35)]
)
def test_the_published_table_comes_back_within_a_third_of_a_gib(
    precision: str, fixed_gib: float, per_token_mib: float
) -> None:
    line = fit(gb10_points(), precision)
    assert line.fixed_gib == pytest.approx(fixed_gib, abs=0.05)
    assert line.per_token_mib == pytest.approx(per_token_mib, abs=0.01)
    assert len(line.residuals) == 8
    assert line.max_error_gib < 0.3
    for seq_len, peaks_gib in GB10_PEAK_GIB[precision].items():
        for batch_size, peak_gib in zip((2, 4, 8, 16), peaks_gib, strict=True):
            assert line.predict_gib(batch_size * seq_len) == pytest.approx(peak_gib, abs=0.3)


@given(
    fixed_gib=st.floats(0, 50),
    per_token_mib=st.floats(0.01, 10),
    batches=st.sets(st.integers(1, 64), min_size=2, max_size=6),
)
def test_points_on_a_line_give_the_line(
    fixed_gib: float, per_token_mib: float, batches: set[int]
) -> None:
    points = [
        point(batch_size=b, seq_len=512, peak_mem_gib=fixed_gib + per_token_mib * b * 512 / 1024)
        for b in sorted(batches)
    ]
    line = fit(points, "fp32")
    assert line.fixed_gib == pytest.approx(fixed_gib, abs=1e-6)
    assert line.per_token_mib == pytest.approx(per_token_mib, rel=1e-6)
    assert line.max_error_gib < 1e-6


def test_residuals_are_measured_minus_fitted() -> None:
    peaks_gib = {1: 1.0, 2: 2.5, 3: 3.0}
    line = fit([point(batch_size=b, peak_mem_gib=g) for b, g in peaks_gib.items()], "fp32")
    for residual in line.residuals:
        fitted = line.predict_gib(residual.batch_size * residual.seq_len)
        assert residual.error_gib == pytest.approx(peaks_gib[residual.batch_size] - fitted)
    assert line.max_error_gib == pytest.approx(max(abs(r.error_gib) for r in line.residuals))


def test_a_line_that_would_start_below_nothing_starts_at_nothing() -> None:
    line = fit([point(batch_size=b, peak_mem_gib=b * b) for b in (1, 2, 3)], "fp32")
    assert line.fixed_gib == 0
    assert line.predict_gib(32) > 0


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ([], "0 number of tokens"),
        ([point()], "1 number of tokens"),
        ([point(batch_size=2, seq_len=16), point(batch_size=4, seq_len=8)], "1 number of tokens"),
        ([point(), failed(batch_size=4)], "1 number of tokens"),
        ([point(batch_size=2, peak_mem_gib=2.0), point(batch_size=4, peak_mem_gib=1.0)], "grow"),
    ],
)
def test_too_little_for_a_line_is_refused(points: list[EnvelopePoint], why: str) -> None:
    with pytest.raises(EnvelopeError, match=why):
        fit(points, "fp32")


@given(limit_gib=st.floats(0, 200))
def test_the_most_tokens_fit_and_one_more_does_not(limit_gib: float) -> None:
    line = fit(gb10_points(), "bf16")
    most = line.most_tokens(limit_gib)
    assert most == 0 or line.predict_gib(most) <= limit_gib + 1e-9
    assert line.predict_gib(most + 1) > limit_gib - 1e-9


# --- the envelope and the rail ----------------------------------------------------------------


def test_an_envelope_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "made" / "envelope.json"
    gb10_envelope().save(path)
    assert Envelope.load(path) == gb10_envelope()
    assert [p.name for p in path.parent.iterdir()] == ["envelope.json"]


@pytest.mark.parametrize("text", [None, "", "{}", '{"kind": "other"}'])
def test_a_file_that_is_no_envelope_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "envelope.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(EnvelopeError):
        Envelope.load(path)


def test_what_cannot_be_fitted_and_what_contradicts_the_fit_is_noted() -> None:
    limit = DeviceLimit(gib=10, source="device")
    points = [
        point(batch_size=2, peak_mem_gib=1.0),
        point(batch_size=4, peak_mem_gib=2.0),
        failed(batch_size=8),
        failed(batch_size=64),
        failed(precision="bf16"),
    ]
    found = Envelope.of(settings(), limit, points)
    assert [line.precision for line in found.fits] == ["fp32"]
    unfitted, contradiction = found.notes
    assert "bf16 cannot be fitted" in unfitted
    assert "fp32 b8 × 16 ran out of memory where the fit says 4.00 GiB" in contradiction


def test_the_measured_shape_gets_the_measured_line() -> None:
    rail: MemoryModel = FittedMemory(gb10_envelope(), vocab_size=GB10_VOCAB, limit_gib=119)
    assert rail.limit_gib == 119
    for p in gb10_points():
        predicted = rail.predict_gib(gb10_base().model_copy(update=p.cell._asdict()))
        assert predicted == pytest.approx(p.peak_mem_gib, abs=0.3)


def test_another_shape_is_scaled_by_the_estimates_ratio() -> None:
    envelope = gb10_envelope()
    rail = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    analytic = AnalyticMemory(
        vocab_size=GB10_VOCAB, backend="megatron", device="cuda", limit_gib=119
    )
    base = gb10_base()
    deeper = base.model_copy(update={"n_layer": 48})
    line = envelope.fit_of("fp8")
    assert line is not None
    assert rail.predict_gib(deeper) == pytest.approx(
        line.predict_gib(16 * 1024) * analytic.predict_gib(deeper) / analytic.predict_gib(base)
    )
    assert rail.predict_gib(deeper) > rail.predict_gib(base)
    fewer_words = FittedMemory(envelope, vocab_size=1024, limit_gib=119)
    assert fewer_words.predict_gib(base) < rail.predict_gib(base)


def test_the_rail_refuses_what_would_be_killed_beside_a_neighbour(tmp_path: Path) -> None:
    def rail(places: int) -> MemoryChoice:
        path = tmp_path / "none"
        return choose_memory(path, vocab_size=300, backend="torch", device="cpu", places=places)

    alone, beside = rail(1), rail(8)
    assert alone.model is not None
    assert beside.model is not None
    assert beside.model.limit_gib == pytest.approx(alone.model.limit_gib / 8)
    assert "shared by 8" in beside.description
    assert "shared" not in alone.description


def test_what_the_defaults_need_of_a_gpu_is_reported_and_refused_where_it_is_not_free() -> None:
    def rail(free_gib: float) -> MemoryChoice:
        model = AnalyticMemory(
            vocab_size=GB10_VOCAB, backend="torch", device="cuda", limit_gib=free_gib
        )
        return MemoryChoice(model, "analytic estimate")

    base = gb10_base()
    need_gib = rail(1).model.predict_gib(base)  # type: ignore[union-attr]
    fits = rail(need_gib + 0.1).for_defaults(base, "spark-354m", "cuda")
    assert fits.description == f"analytic estimate; the defaults need {need_gib:.1f} GiB"
    tight = rail(need_gib - 0.1)
    with pytest.raises(MachineryError) as why:
        tight.for_defaults(base, "spark-354m", "cuda")
    assert "\n" not in str(why.value)
    assert tight.for_defaults(base, "spark-354m", "cpu") == tight


def test_a_mean_of_the_weights_takes_four_bytes_a_parameter(tmp_path: Path) -> None:
    plain = choose_memory(tmp_path / "none", vocab_size=GB10_VOCAB, backend="torch", device="cpu")
    averaging = plain.with_average(GB10_VOCAB)
    assert plain.model is not None
    assert averaging.model is not None
    base = gb10_base()
    more_gib = averaging.model.predict_gib(base) - plain.model.predict_gib(base)
    assert more_gib * 2**30 == pytest.approx(4 * parameter_count(base, GB10_VOCAB))
    assert averaging.model.limit_gib == plain.model.limit_gib
    assert averaging.with_average(GB10_VOCAB) == averaging
    for five in (plain.with_average(GB10_VOCAB, 5), averaging.with_average(GB10_VOCAB, 5)):
        assert five.model is not None
        all_gib = five.model.predict_gib(base) - plain.model.predict_gib(base)
        assert all_gib == pytest.approx(5 * more_gib)


@pytest.mark.parametrize(("backend", "device"), [("torch", "cuda"), ("torch", "cpu")])
def test_whichever_moments_are_largest_the_rail_keeps_the_estimates_proportions(
    backend: str, device: str
) -> None:
    """The machine takes a tenth more than the estimate, plus half a GiB."""
    analytic = AnalyticMemory(vocab_size=GB10_VOCAB, backend=backend, device=device, limit_gib=119)

    def peak_gib(shape: Config) -> float:
        return 1.1 * analytic.predict_gib(shape) + 0.5

    base = gb10_base().model_copy(update={"precision": "bf16"})
    steps = [base.model_copy(update={"batch_size": batch}) for batch in (1, 2, 4, 8, 16)]
    points = [
        point(**one.model_dump(include=set(Cell._fields)), peak_mem_gib=peak_gib(one))
        for one in steps
    ]
    asked = settings(base=base, vocab_size=GB10_VOCAB, backend=backend, device=device)
    envelope = Envelope.of(asked, DeviceLimit(gib=119, source="system"), points)
    line = envelope.fit_of("bf16")
    assert line is not None
    rail = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    for one in steps:
        assert rail.predict_gib(one) == pytest.approx(line.predict_gib(one.tokens_per_step))
    shapes = itertools.product((256, 512, 2048), (2, 24, 48), (True, False), ("gelu", "swiglu"))
    for width, layers, tied, activation in shapes:
        for batch_size, seq_len in itertools.product((1, 2, 16, 64), (64, 1024)):
            other = base.model_copy(
                update={
                    "d_model": width,
                    "d_ff": 4 * width,
                    "n_layer": layers,
                    "tie_embeddings": tied,
                    "activation": activation,
                    "batch_size": batch_size,
                    "seq_len": seq_len,
                }
            )
            assert 1 < rail.predict_gib(other) / analytic.predict_gib(other) < 1.4, other


def test_a_precision_that_was_not_measured_is_estimated() -> None:
    rail = FittedMemory(gb10_envelope(), vocab_size=GB10_VOCAB, limit_gib=119)
    analytic = AnalyticMemory(
        vocab_size=GB10_VOCAB, backend="megatron", device="cuda", limit_gib=119
    )
    fp32 = gb10_base().model_copy(update={"precision": "fp32"})
    assert rail.predict_gib(fp32) == analytic.predict_gib(fp32)


def test_a_small_step_of_a_large_model_needs_room_for_the_update() -> None:
    """This applies if gradients have no buffer of their own and no other phase needs more."""
    envelope = gb10_envelope()
    on_cpu = envelope.settings.model_copy(update={"backend": "torch", "device": "cpu"})
    envelope = envelope.model_copy(update={"settings": on_cpu})
    rail = FittedMemory(envelope, vocab_size=GB10_VOCAB, limit_gib=119)
    one = gb10_base().model_copy(update={"batch_size": 1, "seq_len": 1})
    line = envelope.fit_of("fp8")
    assert line is not None
    assert rail.predict_gib(one) > line.predict_gib(1)


def test_the_rail_takes_the_envelope_where_there_is_one(tmp_path: Path) -> None:
    path = envelope_path(tmp_path, menu_sha256="a" * 64, backend="torch", device="cpu")

    def choice(**more: float) -> tuple[type, str, float]:
        chosen = choose_memory(path, vocab_size=300, backend="torch", device="cpu", **more)
        return type(chosen.model), chosen.description, chosen.model.limit_gib

    kind, description, _ = choice()
    assert kind is AnalyticMemory
    points = [point(batch_size=b, peak_mem_gib=0.2 + 0.01 * b) for b in (2, 4, 8)]
    Envelope.of(settings(), DeviceLimit(gib=9, source="system"), points).save(path)
    kind, description, limit_gib = choice(trial_limit_gib=0.5)
    assert kind is FittedMemory
    assert "fp32 ± 0.00 GiB over 3 points" in description
    assert limit_gib == 0.5
    path.write_text("{")
    with pytest.raises(EnvelopeError):
        choice()


def test_a_campaign_that_compiles_is_told_more_than_an_envelope_that_did_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "envelope.json"
    points = [point(batch_size=b, peak_mem_gib=0.2 + 0.01 * b) for b in (2, 4, 8)]
    asked = settings(device="cuda")
    envelope = Envelope.of(asked, DeviceLimit(gib=9, source="system"), points)
    eager, compiled = (
        FittedMemory(envelope, vocab_size=300, limit_gib=9, compile=compiles)
        for compiles in (False, True)
    )
    large = asked.base.model_copy(update={"batch_size": 4096})
    assert compiled.predict_gib(large) > 1.2 * eager.predict_gib(large)
    chosen = (
        choose_memory(path, vocab_size=300, backend="torch", device="cpu", compile=compiles).model
        for compiles in (False, True)
    )
    assert len({model.predict_gib(large) for model in chosen}) == 1, "on a CPU it is all one"


def test_envelopes_of_other_devices_and_backends_are_kept_apart(tmp_path: Path) -> None:
    def path(**changes: str) -> Path:
        asked = {"menu_sha256": "a" * 64, "backend": "torch", "device": "cuda:0", **changes}
        return envelope_path(tmp_path, **asked)

    others = ({"menu_sha256": "b" * 64}, {"backend": "megatron"}, {"device": "cpu"})
    assert len({path(), *(path(**other) for other in others)}) == 4
    assert path() == path(device="cuda:1"), "the same kind of device"


# --- the file of points -----------------------------------------------------------------------


def test_points_are_there_again_after_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "new" / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
        points.append(failed(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2), failed(batch_size=4))
        assert points.find(Cell("fp32", 16, 2)) == point(batch_size=2)
        assert points.find(Cell("fp32", 16, 8)) is None


def test_only_a_settled_point_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        for batch_size, status in ((2, "oom"), (4, "crash"), (8, "timeout"), (16, "refused")):
            points.append(failed(batch_size=batch_size, status=status))
        found = [points.find(Cell("fp32", 16, batch)) is not None for batch in (2, 4, 8, 16)]
        assert found == [True, False, False, False]
        points.append(point(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.find(Cell("fp32", 16, 4)) == point(batch_size=4), "the later one counts"
        assert len(points.points) == 4


@pytest.mark.parametrize("kept_bytes", [1, 40])
def test_a_torn_last_line_is_removed_and_nothing_else(tmp_path: Path, kept_bytes: int) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:kept_bytes])
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2),)
        points.append(point(batch_size=4))
    with PointsFile(path, settings()) as points:
        assert points.points == (point(batch_size=2), point(batch_size=4))


def test_damage_before_the_last_line_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    with PointsFile(path, settings()) as points:
        points.append(point(batch_size=2))
        points.append(point(batch_size=4))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2], ""]))
    with pytest.raises(EnvelopeError, match="line 2"):
        PointsFile(path, settings())


def test_other_settings_are_refused_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    PointsFile(path, settings()).close()
    base = settings().base.model_copy(update={"n_layer": 2})
    with pytest.raises(EnvelopeError, match="n_layer"):
        PointsFile(path, settings(base=base, steps=5))
    PointsFile(path, settings()).close()


def test_points_of_another_device_are_not_mixed_in(tmp_path: Path) -> None:
    with PointsFile(tmp_path / "points.jsonl", settings()) as points:
        points.append(point(batch_size=2, device_name="NVIDIA GB10"))
        points.append(failed(batch_size=4))
        with pytest.raises(EnvelopeError):
            points.append(point(batch_size=8, device_name="H200"))


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with (
        PointsFile(tmp_path / "points.jsonl", settings()),
        pytest.raises(EnvelopeError),
    ):
        PointsFile(tmp_path / "points.jsonl", settings())


def test_failure_is_never_a_number() -> None:
    with pytest.raises(ValueError, match="has no speed"):
        failed(tokens_per_s=1.0)
    with pytest.raises(ValueError, match="has its numbers"):
        point(step_ms=None)


def test_settings_leave_a_step_to_count() -> None:
    with pytest.raises(ValueError, match="4 of 4 steps are warm-up"):
        settings(warmup=4)


# --- the sweep --------------------------------------------------------------------------------


class Watched:
    """Observer that records the cells and points reported to it."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.points: list[EnvelopePoint] = []

    def __call__(self, seen: Cell | EnvelopePoint) -> None:
        if isinstance(seen, Cell):
            self.cells.append(seen)
        else:
            self.points.append(seen)


class Machine(InstantExecutor):
    """Executor whose trials take 10 ms per step after a first step of one second, without
    training."""

    def __init__(self, fails: dict[int, TrialFailed | BaseException] | None = None) -> None:
        self.fails = fails or {}
        """Failure of each batch size."""
        self.specs: list[TrialSpec] = []

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.specs.append(spec)
        failure = self.fails.get(spec.config.batch_size)
        if isinstance(failure, BaseException):
            raise failure
        if failure is not None:
            return Finished(failure, 1.0)
        steps = int(spec.budget.amount)
        for step in range(1, steps + 1):
            if step in {1, steps} or step % spec.log_every == 0:
                tokens = step * spec.config.tokens_per_step
                elapsed_s = 1.0 + 0.01 * (step - 1)
                tell(
                    CurvePoint(
                        step=step, tokens=tokens, loss=5, lr=1e-3, grad_norm=1, elapsed_s=elapsed_s
                    )
                )
        return Finished(trial_ok(spec), 2.0)


def test_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    machine = Machine()
    asked = settings(steps=30, warmup=5)
    (only,) = sweep(asked, cells([2], [16], ["fp32"]), tmp_path, machine, Watched())
    assert only.step_ms == pytest.approx(10.0)
    assert only.tokens_per_s == pytest.approx(32 / 0.01)
    assert machine.specs[0].budget.amount == 30


def test_without_a_warm_up_every_step_counts(tmp_path: Path) -> None:
    grid = cells([2], [16], ["fp32"])
    (only,) = sweep(settings(steps=4, warmup=0), grid, tmp_path, Machine(), Watched())
    assert only.step_ms == pytest.approx(1030 / 4)


def test_a_curve_without_the_counted_steps_is_the_machinerys_fault() -> None:
    with pytest.raises(MachineryError):
        counted_step_s([], 2)


def test_a_failure_is_recorded_and_the_sweep_goes_on(tmp_path: Path) -> None:
    oom = TrialFailed(status="oom", message="no memory left", peak_mem_gib=3.0)
    machine = Machine({4: oom, 8: SpecError("no such precision here")})
    watched = Watched()
    grid = cells([2, 4, 8, 16], [16], ["fp32"])
    points = sweep(settings(), grid, tmp_path, machine, watched)
    assert [p.status for p in points] == ["ok", "oom", "refused", "ok"]
    assert (points[1].message, points[1].peak_mem_gib) == ("no memory left", 3.0)
    assert points[2].message == "no such precision here"
    assert watched.cells == list(grid)
    assert watched.points == list(points)


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    grid = cells([2, 4, 8], [16], ["fp32"])
    with pytest.raises(KeyboardInterrupt):
        sweep(settings(), grid, tmp_path, Machine({4: KeyboardInterrupt()}), Watched())
    machine = Machine()
    points = sweep(settings(), grid, tmp_path, machine, Watched())
    assert [spec.config.batch_size for spec in machine.specs] == [4, 8]
    assert [p.batch_size for p in points] == [2, 4, 8]
    wider = sweep(settings(), cells([16], [16], ["fp32"]), tmp_path, machine, Watched())
    assert [p.batch_size for p in wider] == [2, 4, 8, 16], "the earlier ones are part of it"


def test_the_device_is_watched_while_it_is_measured(tmp_path: Path) -> None:
    asked, grid = settings(steps=30, warmup=5), cells([2, 4], [16], ["fp32"])

    def measured(device: FakeDevice, *batch_sizes: int) -> DeviceUse | None:
        telemetry = choose_telemetry("cuda", nvml=FakeNvml(device))
        cells_asked = [cell for cell in grid if cell.batch_size in batch_sizes]
        points, use = watched_sweep(asked, cells_asked, tmp_path, Machine(), Watched(), telemetry)
        assert len(points) >= len(batch_sizes)
        return use

    use = measured(gb10(), 2)
    assert use is not None
    assert (use.power_peak_w, use.gpu_util_peak_pct, use.temperature_peak_c) == (55.8, 87, 66)
    assert use.power_mean_w == pytest.approx(55.8)
    later = measured(gb10(power=77_100, utilisation=not_supported()), 4)
    assert later is not None
    assert later.power_peak_w == 77.1
    assert later.power_mean_w is not None
    assert 55.8 < later.power_mean_w < 77.1, "both sittings are in it"
    assert later.gpu_util_peak_pct == 87, "of the sitting that was told it"


def test_broken_machinery_ends_the_sweep_and_is_no_point(tmp_path: Path) -> None:
    grid = cells([2, 4], [16], ["fp32"])
    with pytest.raises(MachineryError):
        sweep(settings(), grid, tmp_path, Machine({4: MachineryError("disk full")}), Watched())
    lines = (tmp_path / POINTS_FILE).read_text().splitlines()
    assert [json.loads(line).get("batch_size") for line in lines[1:]] == [2]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(allow_unsandboxed=True) as executor:
        yield executor


@pytest.mark.slow
def test_real_trials_on_random_tokens(tmp_path: Path, executor: LocalExecutor) -> None:
    """One trial runs out of memory, no backend trains another, and two are measured."""
    asked = settings(memory_gib=1.0)
    large = asked.base.model_copy(update={"d_model": 512, "d_ff": 2048})
    asked = asked.model_copy(update={"base": large})
    watched = Watched()
    grid = (
        Cell("fp32", 16, 2),
        Cell("fp32", 16, 8),
        Cell("fp32", 512, 512),
        Cell("fp8", 16, 2),
    )
    points = sweep(asked, grid, tmp_path, executor, watched)
    assert [p.status for p in points] == ["ok", "ok", "oom", "refused"], points
    for p in points[:2]:
        assert p.tokens_per_s == pytest.approx(1e3 * p.tokens_per_step / (p.step_ms or 0))
        assert 0.05 < (p.peak_mem_gib or 0) < 1
    curve = (tmp_path / "trials" / "fp32-b2-s16" / "curve.jsonl").read_text().splitlines()
    ends_s = {p.step: p.elapsed_s for p in map(CurvePoint.model_validate_json, curve)}
    assert points[0].step_ms == pytest.approx(1e3 * (ends_s[4] - ends_s[2]) / 2)


# --- random tokens ----------------------------------------------------------------------------


def test_random_tokens_are_a_corpus_like_any_other(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    assert is_intact(corpus)
    info = corpus.info
    assert info.vocab_size == 300
    assert int(corpus.train.max()) == info.separator_id == 299
    assert len(set(corpus.train.tolist())) == 300
    (text,) = corpus.documents("heldout")
    assert len(text.encode()) == info.heldout_bytes
    assert [int(word) for word in text.split()] == corpus.heldout[1:].tolist()


def test_random_tokens_are_made_once_and_are_long_enough(tmp_path: Path) -> None:
    first = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    again = random_corpus(tmp_path, vocab_size=300, longest_seq_len=64)
    assert again.directory == first.directory
    longer = random_corpus(tmp_path, vocab_size=300, longest_seq_len=100_000)
    assert longer.info.train_tokens > 100_000
    assert open_corpus(longer.directory).info == longer.info


@pytest.mark.parametrize(("spec", "size"), [("bytes", 257), ("bpe:50257", 50257)])
def test_a_tokenizers_vocabulary_is_known_without_training_it(spec: str, size: int) -> None:
    assert vocabulary_of(spec) == size


def test_a_tokenizer_files_vocabulary_counts_the_separator(tmp_path: Path) -> None:
    corpus = random_corpus(tmp_path, vocab_size=300, longest_seq_len=32)
    assert vocabulary_of(f"file:{corpus.directory / 'tokenizer.json'}") == 300


# --- layout -----------------------------------------------------------------------------------


def test_the_fp8_gain_is_the_published_one() -> None:
    grid = Grid.of(gb10_points())
    assert grid.precisions == ["bf16", "fp8"]
    assert grid.gain_pct("fp8", "bf16", 1024, 2) == pytest.approx(100 * (11944 / 11044 - 1))
    assert grid.gain_pct("fp8", "bf16", 1024, 32) is None
    assert Grid.of([point(), failed(precision="bf16")]).gain_pct("bf16", "fp32", 16, 2) is None


def test_a_telemetrys_summary_is_taken_as_far_as_it_goes() -> None:
    summary = Tally().summary(usd_per_kwh=0.0)
    power = MeanAndPeak(mean=55.8, peak=77.1)
    use = DeviceUse.of(summary.model_copy(update={"power_w": power}))
    assert (use.power_mean_w, use.power_peak_w, use.gpu_util_mean_pct) == (55.8, 77.1, None)
