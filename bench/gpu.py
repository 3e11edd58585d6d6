"""Measure the trainer on a GPU in one run: ``python -m bench.gpu``, eight minutes at most.

It measures the ceiling of the device, then trials of the ``spark-354m`` menu's shape in bf16 at its
own batch and sequence. A trial is 60 steps and the evaluation, from the spec to the result, cold
and as in a campaign. Every available backend and precision runs against a hand-written reference.
Candidates alternate, in reversed order every other round; the figures are medians. Candidates that
cannot run, or no longer fit into the time, are listed with their reasons.

It needs torch with CUDA and the packages in :data:`NEEDED`, but not the agent. ``--rehearse`` runs
all of its code with a tiny shape on the CPU. ``--loop`` instead runs ten iterations of
``autoresearch loop`` with the menu, and keeps its rows and telemetry; that needs the whole product
installed. ``--own`` instead runs user's scripts, started in ten ways, through the installed
commands (:mod:`bench.gpu_own`). ``--table`` instead races models of two known shapes and of twelve
drawn ones against what ``torch.compile`` makes of them (:mod:`bench.gpu_table`).
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

NEEDED = "torch numpy pydantic psutil tokenizers landlockpy".split()
LIMIT_S = 480.0
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and save the figures. The exit status is 1 if nothing could be measured."""
    options = _parser().parse_args(arguments)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _refuse(f"bench.gpu needs {', '.join(missing)}; pip install them beside torch")
    if not options.rehearse:
        import torch

        if not torch.cuda.is_available():
            return _refuse(
                f"torch {torch.__version__} sees no CUDA device, and this measures one;"
                " --rehearse runs the same script with a tiny shape on the CPU"
            )
        from trainer.training.cuda_probe import probe_cuda

        probe = probe_cuda(options.device)
        if not probe.works:
            return _refuse(probe.said)
        print(f"in the sandbox: {probe.said}")
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    """Run the chosen measurement."""
    if options.loop:
        from bench.gpu_loop import run_loop

        return run_loop(options.out, options.device, rehearse=options.rehearse)
    if options.own:
        from bench.gpu_own import run_own

        return run_own(options.out, options.device, options.seconds, rehearse=options.rehearse)
    if options.table:
        from bench.gpu_table import run_table

        return run_table(options.out, options.device, options.seconds, rehearse=options.rehearse)
    return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    from autoresearch.errors import AutoresearchError
    from bench.gpu_session import Session, cpu_plan, gpu_plan

    plan = cpu_plan(ROUNDS) if options.rehearse else gpu_plan(options.device, ROUNDS)
    try:
        session = Session(plan, options.out, options.seconds)
        session.run()
    except AutoresearchError as error:
        return _refuse(str(error))
    if options.write and not options.rehearse:
        session.append_to(Path(__file__).with_name("RESULTS.md"))
    return 0 if session.laps else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--rehearse", action="store_true", help="a tiny shape on the CPU")
    parser.add_argument("--loop", action="store_true", help="ten iterations of the loop instead")
    parser.add_argument("--table", action="store_true", help="against compiled models instead")
    parser.add_argument("--own", action="store_true", help="user's scripts instead")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N")
    parser.add_argument("--seconds", type=float, default=LIMIT_S, help="stop starting laps after")
    parser.add_argument("--write", action="store_true", help="append to bench/RESULTS.md")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/bench-gpu"), help="folder for trials and telemetry"
    )
    return parser


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
