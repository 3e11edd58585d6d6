#!/usr/bin/env bash
# The whole funnel on cpu-tiny, from an empty directory: a small night, the cull, the long runs, the launch
# plan, and the cloud's first day against its forecast, once as forecast and once not.
#
#   mkdir /tmp/walk && cd /tmp/walk && bash /path/to/docs/funnel.sh
#
# ITERS, STEPS, TOP, SPREAD and SEEDS make it shorter or longer; on two quiet cores the defaults take
# five to ten minutes.
set -euo pipefail

iters=${ITERS:-30} steps=${STEPS:-300} top=${TOP:-3} spread=${SPREAD:-6} seeds=${SEEDS:-2}
campaign=runs/cpu-tiny
bytes_per_token=4.4   # of the target's own tokenizer: count it on your text

say() { printf '\n$ %s\n' "$*"; "$@"; }

# A cloud run's log, made from the forecast's middle: step and loss in nats per token, with a batch's
# noise. Its loss rises by the given fraction over the second half.
cloud_log() {
  awk -F, -v rise="$1" -v bytes="$bytes_per_token" 'BEGIN { srand(1); print "step,loss" }
    NR > 1 { step[NR] = $2; bpb[NR] = $4 }
    END {
      for (i = 2; i <= NR; i++) {
        late = i > NR / 2 ? (i - NR / 2) / (NR / 2) : 0
        noise = 1 + 0.004 * (rand() + rand() - 1)
        printf "%d,%.5f\n", step[i], bpb[i] * bytes * log(2) * noise * (1 + rise * late)
      }
    }' handoff/forecast.csv
}

# Verify a log ($1), and fail where it ends with another exit code than those that may be.
verify() {
  local log=$1 code=0
  shift
  say autoresearch verify --log "$log" || code=$?
  if [[ " $* " != *" $code "* ]]; then
    echo "verify ended with $code on $log, not with $*" >&2
    exit 1
  fi
}

say autoresearch loop --iters "$iters" --campaign "$campaign"
say autoresearch top --k 10 --campaign "$campaign"
say autoresearch stress --top "$top" --steps "$steps" --spread "$spread" --seeds "$seeds" --campaign "$campaign"
say autoresearch top --k 3 --campaign "$campaign"
say autoresearch handoff --target llama-7b --nodes 1 --gpus 8 --gpu h100 \
  --bytes-per-token "$bytes_per_token" --campaign "$campaign"
say autoresearch cost --campaign "$campaign"

cloud_log 0 > fits.csv
verify fits.csv 0 3   # 3: from proxies this small the band is too wide to confirm anything

cloud_log 1.5 > departs.csv
verify departs.csv 1
