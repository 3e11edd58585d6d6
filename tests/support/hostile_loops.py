"""Run a loop in which a language model proposes each of a script's attacks."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.campaigns import environment_of, run_command
from tests.support.openai_server import OpenAIServer, says


def loop_rows(checkout: Path, menu: str, changes: Sequence[Any], iters: int) -> list[Any]:
    """Run the loop in the script's folder, and return the rows of its journal.

    :param changes: what the model proposes, in order.
    """
    turns = [says(json.dumps({"changes": each, "reason": "an attack"})) for each in changes]
    with OpenAIServer(turns) as server:
        environment = {
            **environment_of(checkout.parent),
            "AUTORESEARCH_LLM_BASE_URL": server.url,
            "AUTORESEARCH_LLM_MODEL": "tiny",
        }
        words = ("loop", f"--menu={menu}.toml", f"--iters={iters}", "--proposer=llm")
        few = ("--baseline-seeds=2", "--set=max_runs=2", "--no-confirm")
        done = run_command((*words, *few), checkout, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evil.example" not in done.stdout + done.stderr
    journal = (checkout / "runs" / menu / "trajectory.jsonl").read_text()
    return [json.loads(line) for line in journal.splitlines()]
