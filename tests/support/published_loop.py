"""Provide the figures of a published campaign of the single-knob loop.

It ran 50 iterations on a GB10 on 25 April 2026. Source: github.com/manavsehgal/ai-field-notes,
articles/autoresearch-agent-loop/evidence/trajectory.jsonl. Each entry has the knob, its new value,
the score that the file calls val_bpb, and the seconds of the iteration, of training and of
proposing. The source's own analysis (articles/trajectory-eval-is-the-agent-flailing/evidence/
analysis.json) counts 36 repeats of 50, 14 pairs, and 6 of 13 knobs. Its article reports 88.1 s per
iteration, of which training took 85.8 s and proposing 1.2 s, and 73.4 minutes in total.
"""

import json
from pathlib import Path

from tests.support.foreign import HEADER, SUMMARY, evaluated

TURNS = (
    ("n_head", 8, 10.9524, 74.2, 71.8, 1.3),
    ("n_head", 32, 10.9362, 76.6, 74.4, 1.18),
    ("d_model", 1536, 10.9448, 106.2, 103.9, 1.03),
    ("d_model", 768, 10.8722, 63.6, 61.5, 1.15),
    ("d_model", 768, 10.9373, 63.8, 61.8, 1.21),
    ("d_model", 768, 10.8713, 64.6, 62.6, 1.12),
    ("n_head", 8, 10.9245, 74.6, 72.3, 1.28),
    ("n_head", 32, 10.9347, 77.9, 75.8, 1.22),
    ("d_model", 1536, 10.9504, 100.9, 98.5, 1.23),
    ("n_head", 4, 10.9401, 88.8, 86.4, 1.03),
    ("d_model", 1536, 10.9385, 105.0, 102.6, 1.2),
    ("d_ff", 6144, 10.9125, 82.3, 79.9, 1.37),
    ("lr", 0.0002, 11.0791, 72.7, 70.5, 1.28),
    ("d_model", 2048, 10.9299, 132.1, 129.4, 1.19),
    ("lr", 0.0002, 11.1329, 72.8, 70.5, 1.31),
    ("n_head", 32, 10.935, 76.9, 74.8, 1.16),
    ("d_ff", 8192, 10.9566, 89.8, 87.5, 1.18),
    ("n_head", 8, 10.9371, 75.9, 73.6, 1.29),
    ("d_model", 1536, 10.9767, 111.0, 108.7, 1.09),
    ("beta1", 0.92, 10.9616, 79.6, 77.2, 1.42),
    ("beta2", 0.92, 10.9524, 79.1, 76.8, 1.35),
    ("n_head", 32, 10.9618, 83.3, 81.1, 1.27),
    ("d_model", 768, 10.8575, 66.4, 64.3, 1.33),
    ("d_model", 2048, 10.9479, 142.1, 139.3, 1.25),
    ("beta2", 0.96, 10.9335, 80.8, 78.3, 1.42),
    ("d_model", 1536, 10.9593, 111.5, 109.2, 1.12),
    ("d_model", 1536, 10.9422, 109.8, 107.4, 1.21),
    ("n_head", 8, 10.9504, 79.8, 77.4, 1.33),
    ("d_model", 1536, 10.946, 107.3, 105.0, 1.2),
    ("d_model", 2048, 10.9393, 131.6, 129.0, 1.23),
    ("d_model", 768, 10.8873, 62.6, 60.5, 1.19),
    ("d_model", 2048, 10.9236, 131.6, 129.0, 1.24),
    ("d_model", 768, 10.8692, 62.6, 60.5, 1.2),
    ("d_model", 1536, 10.9127, 101.1, 98.8, 1.19),
    ("n_head", 8, 10.9374, 72.7, 70.4, 1.31),
    ("d_model", 1536, 10.9571, 101.5, 99.2, 1.19),
    ("n_head", 32, 10.9469, 76.9, 74.7, 1.16),
    ("d_model", 256, 13.7575, 40.7, 38.7, 1.28),
    ("n_head", 4, 10.9487, 87.3, 85.0, 1.32),
    ("n_head", 4, 10.9405, 87.0, 84.8, 1.11),
    ("d_model", 2048, 10.9667, 131.6, 128.9, 1.35),
    ("lr", 0.0002, 11.1193, 73.1, 70.9, 1.19),
    ("d_ff", 6144, 10.8989, 81.8, 79.4, 1.28),
    ("d_model", 1536, 10.9686, 101.5, 99.0, 1.35),
    ("d_model", 768, 10.8534, 62.6, 60.5, 1.11),
    ("d_ff", 8192, 10.8885, 90.4, 88.0, 1.27),
    ("n_head", 32, 10.9398, 77.3, 75.1, 1.14),
    ("d_ff", 4096, 10.9337, 73.2, 71.1, 1.19),
    ("d_model", 2048, 10.9334, 135.0, 132.3, 1.2),
    ("n_head", 8, 10.9601, 74.7, 72.6, 1.05),
)
KEPT = (4, 6, 23, 31, 33, 43, 45, 46)


def write_published_loop(path: Path) -> Path:
    """Write the campaign as in its file, with the baseline first and the summary last."""
    lines = [dict(HEADER)]
    for number, (knob, value, score, wall_s, train_s, propose_s) in enumerate(TURNS, start=1):
        line = evaluated(number, knob, value, score)
        line["decision"] = "keep" if number in KEPT else "revert"
        line["eval_metrics"] = {**line["eval_metrics"], "train_wall_s": train_s}
        lines.append(line | {"iter_wall_s": wall_s, "nim_latency_s": propose_s})
    lines.append(dict(SUMMARY))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
