#!/usr/bin/env python3
"""The bus bandwidth of an all-reduce between nodes, each GPU with its peers at other nodes alone.

    torchrun --nnodes 2 --nproc-per-node 8 --node-rank N --master-addr A measure_fabric.py \
        --gpus-per-node 8 --least 32 --output fabric.json

Ranks with the same number on their nodes form a ring, and all rings run at once. So every GPU uses
its own adapter, and the links within a node are not used. Bus bandwidth is ``2 (n - 1) / n × bytes
/ seconds`` for n nodes, as in NVIDIA's nccl-tests. The script needs PyTorch. It exits with 1 if the
bandwidth is below ``--least``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

WARM_UP = 3


def main(arguments: list[str] | None = None) -> int:
    """Measure the bandwidth, print it and write it; return 1 if it is too low, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus-per-node", type=int, required=True)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--least", type=float, default=0.0, help="10^9 bytes a second.")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args(arguments)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(dist.get_node_local_rank())
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, each = dist.get_rank(), asked.gpus_per_node
    nodes, here = dist.get_world_size() // each, rank % each
    if nodes < 2 or dist.get_world_size() % each:
        sys.stderr.write(
            f"error: {dist.get_world_size()} ranks, {each} a node, fill fewer than two nodes; "
            "run it on as many nodes as will train\n"
        )
        dist.destroy_process_group()
        return 1
    rings = [dist.new_group([node * each + slot for node in range(nodes)]) for slot in range(each)]
    device = torch.device("cuda", here) if on_gpu else torch.device("cpu")
    ring = rings[here]
    if not isinstance(ring, dist.ProcessGroup):
        raise TypeError("this rank is in no ring of its own")
    slowest_s = _slowest(ring, device, asked.megabytes, asked.repeats)
    dist.destroy_process_group()
    bus_gb_s = 2 * (nodes - 1) / nodes * asked.megabytes * 1e6 / slowest_s / 1e9
    if rank == 0:
        verdict = "passed" if bus_gb_s >= asked.least else "FAILED"
        sys.stdout.write(
            f"{verdict}: {bus_gb_s:.3g} GB/s of bus bandwidth a GPU between {nodes} nodes of "
            f"{each}, wanted {asked.least:g}\n"
        )
        if asked.output:
            seen = {
                "fabric_gb_s": bus_gb_s,
                "nodes": nodes,
                "gpus": each,
                "megabytes": asked.megabytes,
            }
            asked.output.write_text(json.dumps(seen, indent=2) + "\n")
    return 1 if bus_gb_s < asked.least else 0


def _slowest(ring: dist.ProcessGroup, device: torch.device, megabytes: int, n: int) -> float:
    """Return the seconds of one all-reduce: the slowest rank's mean over ``n`` of them."""
    values = torch.ones(megabytes * 250_000, dtype=torch.float32, device=device)
    began = 0.0
    for repeat in range(WARM_UP + n):
        if repeat == WARM_UP:
            _wait(device)
            dist.barrier()
            began = time.perf_counter()
        values.fill_(1.0)
        dist.all_reduce(values, group=ring)
    _wait(device)
    seconds = (time.perf_counter() - began) / n
    size = dist.get_world_size(ring)
    if float(values[0]) != size:
        raise RuntimeError(f"an all-reduce of ones gave {float(values[0])} on {size} ranks")
    took = torch.tensor([seconds], device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
