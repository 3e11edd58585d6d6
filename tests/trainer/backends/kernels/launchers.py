"""Build and load the C code that Triton's driver compiles, as a trial that launches kernels
does."""

import importlib
import json
import os
import sys
from pathlib import Path

from trainer.schema import TrialSpec

ENTRY = "tests.trainer.backends.kernels.launchers:build"
SIGNATURE = {0: "*fp32", 1: "*bf16", 2: "i32", 3: "fp32"}


def build(spec: TrialSpec, trial_dir: Path, *, born: float) -> None:
    """Build the helper, and the launcher that Triton 3.6 has per signature.

    Triton 3.7 has one launcher for all signatures in its helper.
    """
    del spec, born
    sys.setdlopenflags(os.RTLD_LAZY)  # the stand-in for libcuda has few of its functions
    driver = importlib.import_module("triton.backends.nvidia.driver")
    built = [type(driver.CudaUtils()).__name__]
    if hasattr(driver, "make_launcher"):
        module = driver.compile_module_from_src(
            src=driver.make_launcher({}, SIGNATURE, None),
            name="__triton_launcher",
            library_dirs=driver.library_dirs(),
            include_dirs=driver.include_dirs,
            libraries=driver.libraries,
        )
        built.append(type(module.launch).__name__)
    (trial_dir / "built.json").write_text(json.dumps(built))
