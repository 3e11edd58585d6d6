"""Run ten iterations of the loop on a GPU, and keep its rows and telemetry as evidence."""

import subprocess
import sys
from pathlib import Path

from bench.gpu_session import MENU, ROOT

ITERATIONS = 10
COMMAND = (sys.executable, "-c", "from agent.cli import main; main()")
REHEARSED = [*"--menu cpu-tiny --baseline-seeds 2 --set max_runs=2 --budget".split(), "20 steps"]


def run_loop(out: Path, device: str, *, rehearse: bool) -> int:
    """Run the loop and return its exit status, or 1 if the agent is not installed.

    If ``out`` holds a campaign already, the loop resumes it.
    """
    why = agent_lacks()
    if why:
        sys.stderr.write(f"error: --loop needs the whole product: {why}; pip install '.[train]'\n")
        return 1
    campaign = (out / ("loop-rehearsal" if rehearse else "loop")).absolute()
    campaign.mkdir(parents=True, exist_ok=True)
    asked = REHEARSED if rehearse else ["--device", device, "--menu", str(MENU)]
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
