"""Run ten iterations of the loop on a GPU, and keep its rows and telemetry as evidence."""

import re
import subprocess
import sys
from pathlib import Path

from autoresearch.errors import AutoresearchError
from bench.gpu_session import MENU, ROOT, gpu_plan
from trainer.spec import BackendName
from trainer.training.readiness import check_trainable

ITERATIONS = 10
COMMAND = (sys.executable, "-c", "from agent.cli import main; main()")
REHEARSED = [*"--menu cpu-tiny --baseline-seeds 2 --set max_runs=2 --budget".split(), "20 steps"]


def run_loop(out: Path, device: str, *, rehearse: bool) -> int:
    """Run the loop and return its exit status, or 1 if the agent is not installed.

    If ``out`` holds a campaign already, the loop resumes it.
    """
    why = agent_lacks()
    if why:
        sys.stderr.write(
            f"error: --loop needs the whole product: {why}; pip install autoresearch\n"
        )
        return 1
    campaign = (out / ("loop-rehearsal" if rehearse else "loop")).absolute()
    campaign.mkdir(parents=True, exist_ok=True)
    asked = REHEARSED if rehearse else _on_gpu(campaign, device)
    iterations = 1 if rehearse else ITERATIONS
    always = ["--iters", str(iterations), "--campaign", str(campaign), "--allow-unsandboxed"]
    always.append("--no-confirm")
    code = subprocess.run([*COMMAND, "loop", *always, *asked], cwd=ROOT, check=False).returncode
    kept = [name for name in ("trajectory.jsonl", "telemetry.csv") if (campaign / name).is_file()]
    print(f"kept in {campaign}: {', '.join(kept) or 'nothing'}")
    return code


def agent_lacks() -> str | None:
    """Return the last line of the error that keeps the agent from starting here, if any."""
    command = [sys.executable, "-c", "import agent.cli"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stderr.strip().splitlines()[-1] if ended.returncode else None


def _on_gpu(folder: Path, device: str) -> list[str]:
    """Return the menu with a backend that trains its default precision here, or the bf16 menu."""
    always = ["--device", device]
    config = gpu_plan(device, 1).config.model_copy(update={"precision": "fp8"})
    backends: tuple[BackendName, ...] = ("torch", "megatron")
    for backend in backends:
        try:
            check_trainable(config, backend, device)
        except AutoresearchError as error:
            print(f"fp8 with {backend}: {error}")
        else:
            return [*always, "--menu", str(MENU), "--backend", backend]
    path = folder / "spark-354m-bf16.toml"
    path.write_text(bf16_menu(MENU.read_text("utf-8")), "utf-8")
    return [*always, "--menu", str(path), "--backend", "torch"]


def bf16_menu(text: str) -> str:
    """Return the menu with its precision as a constant, bf16, instead of a knob."""
    without = re.sub(r"(?ms)^\[knobs\.precision\]\n.*?(?=^\[)", "", text)
    return without.replace("[constants]\n", '[constants]\nprecision = "bf16"\n')
