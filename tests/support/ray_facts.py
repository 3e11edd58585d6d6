"""Provide the facts that nodes report, without nodes."""

from typing import Any

from autoresearch.code import code_identity, installed_version
from trainer.executors.ray.messages import NodeFacts


def node_facts(**changes: Any) -> NodeFacts:
    """Return a suitable machine's facts, with any field changed."""
    fields: dict[str, Any] = {
        "code": code_identity(),
        "torch": installed_version("torch"),
        "cpu": "a processor",
        "gpus": (),
        "cores": 2,
        "memory_gib": 8,
        "confines": True,
        "sandbox": "landlock",
        "directory": "/tmp",
        "disk": "",
        "free_gib": 10,
    }
    return NodeFacts(**{**fields, **changes})
