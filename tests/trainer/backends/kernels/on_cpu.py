"""Compile kernels in a trial on the CPU, to which the cache is open as to one on a GPU.

The fork server imports this module and so torch, which stops a trial on a GPU here.
"""

from pathlib import Path

from tests.trainer.backends.kernels import cubins
from trainer.schema import TrialSpec, trial

trial.makes_code = lambda device: True


def compile_activations(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Run a trial that does not train: it compiles a few kernels for an H200."""
    del spec, trial_dir, born
    cubins.main("90", kernels=("activation",))
