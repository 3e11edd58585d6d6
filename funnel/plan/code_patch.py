"""Write the winner's functions as a file to patch Megatron-LM with, since no flag carries code."""

from __future__ import annotations

from trainer.code import slot_of
from trainer.spec import Config

CODE_FILE = "code_patch.py"

_HEAD = '''\
"""Functions of the winning config that no flag of Megatron-LM can carry.

Each stands below as torch reference. Put its counterpart into Megatron-LM, and compare the two on
the tensors that the comment describes: ``same(NAME, counterpart, *arguments)`` raises if they
differ. Learned parameters are keyword-only arguments with their first value; ``: D`` is one per
column.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def same(name, counterpart, *arguments, **learned):
    """Compare a counterpart in Megatron-LM with the reference of that name."""
    torch.testing.assert_close(
        counterpart(*arguments, **learned), globals()[name](*arguments, **learned)
    )


'''


def code_patch(config: Config) -> str:
    """Return a module with the functions that a config sets, each as a torch reference."""
    values = {
        "beta1": config.beta1,
        "beta2": config.beta2,
        "min_ratio": config.lr_min_ratio,
        "decay_share": config.decay_share,
        "std": 0.02 * config.init_scale,
    }
    used = {name for key in config.code for name in slot_of(key).reads}
    parts = ["".join(f"{name} = {values[name]!r}\n" for name in values if name in used)]
    for key, source in config.code.items():
        slot = slot_of(key)
        built_in = config.function(key, "").replace("\n", "\n#     ")
        about = f"# {key}: {slot.doc}\n# In place of\n#     {built_in}\n"
        parts.append(f"{about}{source}\n")
    return _HEAD + "\n\n".join(filter(None, parts))
