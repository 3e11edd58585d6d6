"""Stand in for an agent program such as ``claude -p``: read the question, and answer as told.

``python agent_program.py FOLDER WAY [REPLY]``: each question, and its facts, are stored in FOLDER.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def note(name: str, text: str) -> None:
    """Write a file whole or not at all, however soon this process is killed."""
    part = folder / f"{name}.part"
    part.write_text(text)
    part.rename(folder / name)


folder, way, reply = Path(sys.argv[1]), sys.argv[2], "".join(sys.argv[3:4])
question = "" if way == "deaf" else sys.stdin.read()
facts = {"here": [path.name for path in Path().iterdir()], "environ": dict(os.environ)}
seen = {"question": question, "pid": os.getpid(), **facts}
number = len(list(folder.glob("asked-*.json"))) + 1
note(f"asked-{number}.json", json.dumps(seen))
held = [sys.executable, "-c", "import time; time.sleep(60)"]
if way in {"text", "deaf"}:
    print(reply)
elif way == "claude":
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 7}
    event = {"type": "result", "subtype": "success", "is_error": False, "result": reply}
    print(json.dumps(event | {"total_cost_usd": 0.25, "usage": usage}))
elif way == "claude-error":
    event = {"type": "result", "subtype": "error", "is_error": True, "result": "credit is too low"}
    print(json.dumps(event | {"total_cost_usd": 0.125}))
    sys.exit(1)
elif way == "codex":
    print("not an event")
    print(json.dumps({"type": "thread.started", "thread_id": "0"}))
    print(json.dumps({"type": "item.completed", "item": {"type": "reasoning", "text": "hm"}}))
    print(json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": reply}}))
    usage = {"input_tokens": 100, "cached_input_tokens": 90, "output_tokens": 7}
    print(json.dumps({"type": "turn.completed", "usage": usage}))
elif way == "codex-error":
    print(json.dumps({"type": "turn.failed", "error": {"message": "usage limit reached"}}))
elif way == "gemini":
    print(json.dumps({"response": reply, "stats": {"models": {}}}, indent=2))
elif way == "gemini-error":
    print(json.dumps({"error": {"type": "ApiError", "message": "quota exceeded", "code": 429}}))
    sys.exit(1)
elif way == "fails":
    print("noise\nplease log in", file=sys.stderr)
    sys.exit(3)
elif way == "noisy":
    sys.stderr.write("progress\n" * 1_000_000)
    print(reply)
elif way in {"hangs", "stops"}:
    note("child", str(subprocess.Popen(held).pid))
    if way == "stops":  # as a person does, whose process the reply names
        os.kill(int(reply), signal.SIGINT)
    time.sleep(60)
elif way == "leaves":  # a process that keeps the pipes open
    note("child", str(subprocess.Popen(held).pid))
    print(reply)
elif way == "escapes":  # the same, out of the process group
    note("child", str(subprocess.Popen(held, start_new_session=True).pid))
    print(reply)
elif way == "floods":
    for _ in range(100):
        sys.stdout.write("x" * 1_000_000)
