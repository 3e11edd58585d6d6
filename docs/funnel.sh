#!/usr/bin/env bash
# The whole funnel on cpu-tiny, from an empty directory: a small night, the long runs, a ladder of sizes, the
# launch plan for 7 B. Then it plans a model twice as large as the ladder's largest, trains it, and judges its
# log by the forecast: once as planned, and once with a learning rate a hundred times too small.
#
#   mkdir /tmp/walk && cd /tmp/walk && bash /path/to/docs/funnel.sh
#
# ITERS, STEPS, TOP, SPREAD, SEEDS, RUNGS (0: no ladder), HOURS (the ladder's) and LARGER (the larger run's
# tokens a parameter) make it shorter or longer; LOOP has more options for the search.
set -euo pipefail

iters=${ITERS:-30} steps=${STEPS:-300} top=${TOP:-3} spread=${SPREAD:-6} seeds=${SEEDS:-2}
rungs=${RUNGS:-4} hours=${HOURS:-0.08} larger=${LARGER:-12}
campaign=runs/cpu-tiny
bytes_per_token=4.4   # of the target's own tokenizer: count it on your text

say() { printf '\n$ %s\n' "$*"; "$@"; }

# Train a plan's recipe on this machine, outside any campaign: plan, directory, factor of the learning rate.
train_planned() {
  python - "$campaign" "$1" "$2" "$3" <<'PYTHON'
import json, pathlib, sys

campaign, plan, out, factor = sys.argv[1:]
recipe = json.loads(pathlib.Path(plan, "recipe.json").read_text())
spec = json.loads(next(pathlib.Path(campaign, "trials").glob("*/spec.json")).read_text())
schedule, carried = recipe["schedule"], recipe["projection"]
config = carried["config"] | {
    "lr": carried["base_lr"] * float(factor),
    "lr_warmup": schedule["warmup_steps"],
    # The rule that the plan's launcher carries out.
    "mup_base_width": carried["base_width"] if carried["lr_rule"] == "mup" else None,
    "precision": spec["config"]["precision"],
}
spec |= {"trial_id": out, "config": config, "log_every": 1, "horizon_steps": None, "prune": None}
spec["budget"] = {"unit": "steps", "amount": schedule["steps"]}
pathlib.Path(out).mkdir()
pathlib.Path(out, "spec.json").write_text(json.dumps(spec))
PYTHON
  say python -m trainer "$2/spec.json"
}

# Run a command, and fail if its exit code is not among those of the first argument.
ending() {
  local codes=$1 code=0
  shift
  say "$@" || code=$?
  if [[ " $codes " != *" $code "* ]]; then
    echo "$* ended with $code, not with one of $codes" >&2
    exit 1
  fi
}

read -ra more <<< "${LOOP:-}"
say autoresearch loop --menu cpu-tiny --iters "$iters" --campaign "$campaign" "${more[@]}"
say autoresearch top --k 10 --campaign "$campaign"
say autoresearch stress --top "$top" --steps "$steps" --spread "$spread" --seeds "$seeds" --campaign "$campaign"
say autoresearch top --k 3 --campaign "$campaign"
if ((rungs > 0)); then
  say autoresearch ladder --rungs "$rungs" --hours "$hours" --campaign "$campaign"
fi
# So short a search earns no GO: the plan's verdict is its exit code.
ending "0 3 4" autoresearch handoff --target llama-7b --nodes 1 --gpus 8 --gpu h100 --anyway \
  --bytes-per-token "$bytes_per_token" --campaign "$campaign"
say autoresearch cost --campaign "$campaign"

if ((rungs == 0)); then
  exit 0   # without a ladder a plan has no forecast that a larger run could be held against
fi

# A model of about twice the parameters of the largest rung, in the corpus's own vocabulary.
python - "$campaign/trajectory.jsonl" "$larger" > desk.toml <<'PYTHON'
import json, sys

rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
vocabulary = rows[0]["corpus"]["vocab_size"]
plans = [row for row in rows if row["kind"] == "ladder_plan"]
rung = max((run["params"] for plan in plans[-1:] for run in plan["runs"]), default=400_000)
layers, sequence = 4, 128
width = max(16, round((2 * rung / (12 * layers)) ** 0.5 / 8) * 8)
inner = 4 * width
blocks = layers * (4 * width**2 + 2 * width * inner + 2 * width)
print(f"""name = "desk"
params = {blocks + width * (vocabulary + sequence + 1)}
d_model = {width}
n_layer = {layers}
n_head = 4
n_kv_head = 4
head_dim = {width // 4}
ffn_ratio = {inner / width}
activation = "gelu"
norm = "layernorm"
positions = "learned"
seq_len = {sequence}
vocab_size = {vocabulary}
tie_embeddings = true
token_budget = {round(float(sys.argv[2]) * blocks)}""")
PYTHON
ending "0 3 4" autoresearch handoff --target desk.toml --nodes 1 --gpus 1 --gpu h100 --anyway \
  --campaign "$campaign" --out handoff-desk

train_planned handoff-desk as-planned 1
# 3: from proxies this small the forecast may be worthless; 1 would call a healthy run broken.
ending "0 3" autoresearch verify --log as-planned/curve.jsonl --handoff handoff-desk

train_planned handoff-desk too-slow 0.01
# 3: the ladder missed its own prediction, so its forecast judges nothing.
ending "1 3" autoresearch verify --log too-slow/curve.jsonl --handoff handoff-desk
