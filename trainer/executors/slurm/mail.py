"""Exchange messages between a lane and its job in small files of a shared file system.

A file is rewritten in place: whoever opens it next sees its new content, on NFS too, where a new
name can stay unseen for a minute. A message begins with its hash, so that one that is half written
is not read. Messages are pickled, as Ray's are: whoever may write here is trusted as this user is.
"""

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

REQUEST_FILE = "request"
"""Its number, the method of a NodeLane, and the arguments."""
REPLY_FILE = "reply"
"""The request's number, what the method returned or raised, and why the job ends, if it does."""
PULSE_FILE = "pulse"
"""A count that grows as long as the campaign's process lives."""
SENT_DIR = "sent"
"""The corpus and the script for the nodes, beside the rooms of the jobs."""

_DIGEST_BYTES = 32


def put(path: Path, message: object) -> None:
    """Write a message."""
    data = pickle.dumps(message)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(hashlib.sha256(data).digest() + data)
        file.truncate()


def get(path: Path) -> Any:
    """Return the message in a file; None if there is none, or it is being written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return pickle.loads(data) if hashlib.sha256(data).digest() == digest else None
