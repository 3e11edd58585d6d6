"""What ``menu from-script`` reads in scripts that were not written for it, against the libraries
that those scripts use.

``--scripts DIR`` points to a checkout with training scripts, such as pytorch/examples or
karpathy/nanoGPT; it may be repeated. Each script that builds an argparse, click or typer command
line, or hands a dataclass to tyro or HfArgumentParser, is read, and is also started in a process of
its own, with every module that it imports from outside the standard library, argparse's peers
aside, replaced by one that answers anything. The moment it parses its arguments, the library's own
list of options is written down and the process ends. Of nanoGPT's style the list is what the script
itself collects (``config_keys``) before it runs its configurator.

An option is *found* where the reader has one of that name, *right* where default, choices and flag
are the library's too, or the reader says that it cannot tell; *wrong* is anything else. What the
reader finds and the library does not is *invented*.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent.menu.files import parse_menu
from agent.menu.scripts.draft import draft_of
from agent.menu.scripts.draft_text import text_of
from agent.menu.scripts.option import Option
from agent.menu.scripts.reading import options_by, read_script, source_of
from autoresearch.errors import AutoresearchError
from bench.figure import Figure
from trainer.script.editing import script_tree

WITNESS = Path(__file__).with_name("script_witness.py")
TIMEOUT_S = 60


def run(checkouts: Iterable[Path] | None = None) -> list[Figure]:
    """How much of what the libraries know the reader finds, over all scripts of the checkouts."""
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    for checkout in checkouts or []:
        for script in sorted(checkout.rglob("*.py")):
            truth = witnessed(script)
            if truth is None:
                continue
            found, said = compared(script, truth)
            seen.update(found)
            wrong += [f"{script.relative_to(checkout)}: {one}" for one in said]
    if not seen["scripts"]:
        return [Figure("none", 0, "", note="name a checkout with --scripts")]
    for one in wrong:
        print(one)
    options = seen["options"]
    note = f"{seen['scripts']} scripts, {options} options that their own libraries list"
    return [
        Figure(
            "options found",
            seen["found"] / options,
            "of all",
            "1.0",
            seen["found"] == options,
            note,
        ),
        Figure(
            "found ones that are right",
            seen["right"] / max(1, seen["found"]),
            "of found",
            "1.0",
            seen["right"] == seen["found"],
            "default, choices and flag, or said not to be known",
        ),
        Figure(
            "left for want of knowing", seen["unknown"], "", note="computed defaults and the like"
        ),
        Figure("invented", seen["invented"], "", "0", seen["invented"] == 0),
        Figure(
            "drafts",
            seen["drafts"] / seen["scripts"],
            "of scripts",
            note=f"with a score's pattern: {seen['scored']}; knobs: {seen['knobs']}",
        ),
    ]


def witnessed(script: Path) -> list[dict[str, Any]] | None:
    """The options that the script's own library has; None where it did not come to ask."""
    text = script.read_text("utf-8", "replace")
    if not any(
        word in text
        for word in ("argparse", "click", "typer", "tyro", "HfArgumentParser", "config_keys")
    ):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "options.json"
        try:
            subprocess.run(
                [sys.executable, str(WITNESS), str(script.resolve()), str(out)],
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=TIMEOUT_S,
                env={"PATH": "/usr/bin:/bin", "HOME": scratch},
            )
        except subprocess.TimeoutExpired:
            return None
        found = json.loads(out.read_text("utf-8")) if out.is_file() else None
    return found or None


def compared(script: Path, truth: list[dict[str, Any]]) -> tuple[Counter[str], list[str]]:
    """What was found of these options, and a line about each that was not, or is wrong."""
    seen: Counter[str] = Counter(scripts=1, options=len(truth))
    try:
        source = source_of(script)
        found = options_by("args", source, script_tree(source))
    except AutoresearchError as error:
        return seen, [str(error)]
    options = {option.name: option for option in found}
    said = []
    for one in truth:
        option = options.get(one["name"]) or options.get(one["name"].lower())
        if option is None:
            said.append(f"{one['name']} was not found")
            continue
        seen["found"] += 1
        seen["unknown"] += bool(option.left)
        problems = [] if option.left else list(_problems(option, one))
        seen["right"] += not problems
        said += [f"{one['name']} (line {option.line}): {problem}" for problem in problems]
    known = {one["name"] for one in truth} | {one["name"].lower() for one in truth}
    invented = [name for name in options if name not in known]
    seen["invented"] = len(invented)
    said += [f"{name} (line {options[name].line}) is none of the script's" for name in invented]
    if any(not option.left for option in found):
        draft = draft_of(read_script(script, "args"), None)
        if draft.knobs:
            # A draft that does not load ends the measurement.
            parse_menu(text_of(draft), str(script))
        seen.update(
            drafts=bool(draft.knobs), scored=draft.score is not None, knobs=len(draft.knobs)
        )
    return seen, said


def _problems(option: Option, truth: dict[str, Any]) -> Iterator[str]:
    default = truth["default"]
    if type(option.default) is not type(default) or option.default != default:
        numbers = all(type(one) in {int, float} for one in (option.default, default))
        # A default that is a text goes through the option's type when it is used.
        through = isinstance(default, str) and str(option.default) == default
        if not through and not (numbers and option.default == default):
            yield f"its default is {default!r}, read as {option.default!r}"
    choices = truth.get("choices")
    if choices and list(option.choices) != choices:
        yield f"its choices are {choices!r:.80}, read as {list(option.choices)!r:.80}"
    flags = re.findall(r"(?:^|[:|])(-[^=|{}]*)", option.argument)
    if "flags" in truth and not set(flags) <= set(truth["flags"]):
        yield f"its flags are {truth['flags']!r}, read as {flags!r}"
    if truth.get("several"):
        yield "it takes several values, read as one"
