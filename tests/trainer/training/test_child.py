"""A whole trial runs in this process, and as ``python -m trainer`` in one of its own."""

import errno
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from autoresearch.errors import CorpusError, MachineryError, SpecError
from tests.support.corpora import write_corpus
from tests.support.places import ROOT
from tests.support.trials import tiny_spec
from trainer.backends.compilation import is_compiler_failure
from trainer.corpus import Corpus
from trainer.schema import Budget, CurvePoint, PruneRule, TrialFailed, TrialOk, parse_result
from trainer.training.child import born_at, refused_by_system, run_trial
from trainer.training.running import make_code


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus")


def python_m_trainer(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainer", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_trial_leaves_a_curve_and_a_result(corpus: Corpus, tmp_path: Path) -> None:
    born = time.monotonic()
    spec = tiny_spec(corpus)
    result = run_trial(spec, tmp_path, born=born)
    assert isinstance(result, TrialOk)
    lines = (tmp_path / "curve.jsonl").read_text().splitlines()
    curve = [CurvePoint.model_validate_json(line) for line in lines]
    assert [p.step for p in curve] == [1, 2, 3, 4, 5]
    assert (curve[0].loss, curve[-1].loss) == (result.train_loss_first, result.train_loss_last)
    assert {p.name for p in tmp_path.iterdir()} == {"corpus", "curve.jsonl"}

    assert result.val_bytes == corpus.info.heldout_bytes
    assert result.val_tokens == corpus.info.heldout_tokens - 1
    bits = result.val_bits_per_token * result.val_tokens
    assert result.val_bpb == pytest.approx(bits / result.val_bytes, rel=1e-12)
    assert result.val_bpb == pytest.approx(math.log2(257), rel=0.1)
    assert result.steps == 5
    assert result.tokens == 5 * 64
    assert result.params == 257 * 16 + 16 * 16 + 4 * 16 * 16 + 2 * 16 * 32 + 3 * 16
    assert result.tokens_per_s == pytest.approx(result.tokens / result.train_s)
    assert 0 < result.setup_s < time.monotonic() - born
    assert result.peak_mem_gib > 0.05
    assert (result.backend, result.precision) == ("torch", "bf16")
    assert result.device


def test_a_process_began_when_forked_whatever_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 0.0)
    (asks, is_asked), (answers, answer) = os.pipe(), os.pipe()
    before = time.monotonic()
    if (child := os.fork()) == 0:
        try:
            os.read(asks, 1)
            time.sleep(5 * TICK_S)
            # A pause between its readings of two clocks makes it later: take the first of many.
            os.write(answer, repr(min(born_at() for _ in range(50))).encode())
        finally:
            os._exit(0)
    after = time.monotonic()
    os.write(is_asked, b"?")
    born = float(os.read(answers, 100))
    os.waitpid(child, 0)
    for end in (asks, is_asked, answers, answer):
        os.close(end)
    assert before - TICK_S <= born <= after + TICK_S


TICK_S = 2 / os.sysconf("SC_CLK_TCK")
"""Twice the unit in which the kernel notes when a process began."""


DIVERGING = {"lr": 1e38, "lr_warmup": 0, "grad_clip": 1e30}


@pytest.mark.parametrize(
    ("recipe", "changes", "status", "steps"),
    [
        (DIVERGING, {"budget": Budget(amount=30)}, "nonfinite", None),
        (DIVERGING, {"budget": Budget(amount=1)}, "nonfinite", 1),  # only the held-out loss is
        ({}, {"prune": PruneRule(at_step=3, window=2, max_loss=0.5)}, "pruned", 3),
    ],
    ids=["diverges", "diverges in scoring", "pruned"],
)
def test_a_config_that_fails_is_a_result(
    corpus: Corpus,
    tmp_path: Path,
    recipe: dict[str, Any],
    changes: dict[str, Any],
    status: str,
    steps: int | None,
) -> None:
    result = run_trial(tiny_spec(corpus, recipe, **changes), tmp_path)
    assert isinstance(result, TrialFailed)
    assert result.status == status
    done = len((tmp_path / "curve.jsonl").read_text().splitlines())
    assert result.steps == (steps or done)


def test_what_fails_in_the_first_step_is_no_evidence_and_its_traceback_is_in_the_log(
    corpus: Corpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = corpus.directory / "train.bin"
    stream.write_bytes(b"\xff\xff" * (stream.stat().st_size // 2))  # an invalid token
    with pytest.raises(MachineryError) as failure:
        run_trial(tiny_spec(corpus), tmp_path)
    assert isinstance(failure.value.__cause__, IndexError)
    assert "Traceback (most recent call last)" in capfd.readouterr().err


def damage_heldout(corpus: Corpus) -> None:
    path = corpus.directory / "heldout.bin"
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("recipe", "changes", "error"),
    [
        ({"precision": "fp8"}, {}, SpecError),
        ({}, {"corpus_sha256": "0" * 64}, CorpusError),
        ({}, {}, CorpusError),  # the held-out tokens are damaged
        *(({}, {"device": name}, MachineryError) for name in ("cuda:99", "xla", "toaster")),
    ],
    ids=str,
)
def test_what_is_no_fault_of_the_config_is_an_error_before_anything_is_trained(
    corpus: Corpus,
    tmp_path: Path,
    recipe: dict[str, Any],
    changes: dict[str, Any],
    error: type[Exception],
) -> None:
    if not recipe and not changes:
        damage_heldout(corpus)
    with pytest.raises(error):
        run_trial(tiny_spec(corpus, recipe, **changes), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"corpus"}


def test_an_unwritable_directory_is_no_evidence(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "curve.jsonl").symlink_to("/dev/full")
    with pytest.raises(MachineryError):
        run_trial(tiny_spec(corpus), tmp_path)
    with pytest.raises(MachineryError):
        run_trial(tiny_spec(corpus), tmp_path / "missing")


def test_what_is_missing_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def said(error: OSError) -> str:
        return str(refused_by_system(error, tmp_path / "trial"))

    (tmp_path / "trial").mkdir()
    header = tmp_path / "include" / "Python.h"
    with pytest.raises(FileNotFoundError) as missing:
        header.read_bytes()
    assert f"the trial cannot use {header} (No such file or directory)" in said(missing.value)
    assert "FileNotFoundError" in capfd.readouterr().err, "trainer.log says what asked for it"
    assert f"cannot use {header} (Perm" in said(
        PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsencode(header))
    )
    own = FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "trial" / "curve.jsonl"))
    assert "cannot write in the trial directory" in said(own)
    assert "cannot write in the trial directory" in said(OSError(errno.ENOSPC, "full"))


@pytest.mark.slow
def test_the_same_spec_gives_the_same_number_to_the_bit(corpus: Corpus, tmp_path: Path) -> None:
    recipe = {"d_model": 64, "n_head": 4, "d_ff": 256, "seq_len": 64, "precision": "bf16"}
    results = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder = tmp_path / name
        folder.mkdir()
        spec = tiny_spec(corpus, recipe, budget=Budget(amount=10), threads=2, seed=seed)
        (folder / "spec.json").write_text(spec.model_dump_json())
        done = python_m_trainer(folder / "spec.json")
        assert done.returncode == 0, done.stderr
        results.append(json.loads((folder / "result.json").read_bytes()))
    first, again, other = results
    for number in ("val_bpb", "train_loss_first", "train_loss_last"):
        assert first[number].hex() == again[number].hex()
        assert first[number] != other[number]


@pytest.mark.slow
def test_the_command_prints_the_result_and_its_own_birth(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(tiny_spec(corpus).model_dump_json())
    out = tmp_path / "elsewhere"
    began = time.monotonic()
    done = python_m_trainer(tmp_path / "spec.json", "--out", out)
    took_s = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    result = parse_result((out / "result.json").read_bytes())
    assert parse_result(done.stdout) == result
    assert isinstance(result, TrialOk)
    # This includes importing torch; the kernel records a start in hundredths of a second.
    assert 0.1 < result.setup_s < took_s + 0.02
    assert not (tmp_path / "result.json").exists()


@pytest.mark.slow
def test_the_command_says_what_is_wrong_in_one_sentence(corpus: Corpus, tmp_path: Path) -> None:
    def refusal(text: str) -> str:
        (tmp_path / "spec.json").write_text(text)
        done = python_m_trainer(tmp_path / "spec.json")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "result.json").exists()
        (line,) = done.stderr.splitlines()
        return line

    fields = json.loads(tiny_spec(corpus).model_dump_json())
    refusal("{")
    wrong = {**fields, "config": {**fields["config"], "n_head": 3}}
    assert "d_model 16" in refusal(json.dumps(wrong))
    assert python_m_trainer(tmp_path / "nothing.json").returncode == 1


def test_what_a_compiler_or_its_programs_raise_is_a_compilers_failure() -> None:
    assert is_compiler_failure(subprocess.CalledProcessError(1, ["ptxas"]))
    assert not is_compiler_failure(RuntimeError("a bug"))
    errors = pytest.importorskip("triton.errors")
    assert is_compiler_failure(errors.TritonError("no"))


def test_kernels_that_do_not_load_are_no_evidence(corpus: Corpus) -> None:
    class Broken(torch.nn.Module):
        def forward(self, *_: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("ptxas: no kernel image")

    tokens_BT = torch.zeros(1, 16, dtype=torch.int64)
    with pytest.raises(MachineryError):
        make_code(tiny_spec(corpus, device="cuda"), Broken(), (tokens_BT, tokens_BT))
