"""Code knobs: places of the built-in GPT where a config may put a function of its own.

A config holds the normalized source of each such function under the slot's key, ``code.NAME``; a
slot without one runs what the trainer has built in. Nothing here imports torch or runs a source:
:mod:`trainer.code.statics` reads it as a syntax tree, and refuses what it does not know.
"""

from trainer.code.slots import MAX_CHARACTERS, MAX_LINES, SLOTS, Parameter, Slot, slot_of
from trainer.code.source import CodeRefused, function_of, normalize, parameters
from trainer.code.statics import check_statically

__all__ = [
    "MAX_CHARACTERS",
    "MAX_LINES",
    "SLOTS",
    "CodeRefused",
    "Parameter",
    "Slot",
    "check_statically",
    "function_of",
    "normalize",
    "parameters",
    "slot_of",
]
