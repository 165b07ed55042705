#!/usr/bin/env bash
# Measures the milliseconds per training step of the medium decoder and the overhead of data parallelism: one worker
# with all threads, compared with eight shards on one worker and with one single-threaded worker per thread. Runs the
# three setups in turn, ROUNDS times.
#
#     benches/workers.sh [WORKERS]         2 workers; needs mpirun
set -euo pipefail
cd "$(dirname "$0")/.."
workers=${1:-2} rounds=${ROUNDS:-3} steps=${STEPS:-12}
cargo build -q --release --features mpi
program=$PWD/target/release/causal-attention
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shape=(data.vocab=65 data.length=256 data.train_samples=512 data.valid_samples=8 model.d_model=384 model.heads=6
    model.layers=6 training.batch_size=8 training.log_every=1 training.validate_every=100000 analysis.every=0
    analysis.snapshots=0 analysis.circuit=false "training.steps=$steps")
# Prints the median time of all steps but the first three.
step() { # COMMAND... -- KEY=VALUE...
    local command=() sets=()
    while [ "$1" != -- ]; do command+=("$1") && shift; done
    shift
    for set in "${shape[@]}" "$@"; do sets+=(--set "$set"); done
    local run
    run=$(mktemp -u "$work/XXXXXX")
    "${command[@]}" "$program" train --quiet --until $((steps - 1)) --run "$run" "${sets[@]}" >/dev/null
    awk -F, '$3 == "train" { if (NR > 4) print ($9 - last) * 1000; last = $9 }' "$run/metrics.csv" |
        sort -n | awk '{ value[NR] = $1 } END { printf "%.0f", value[int((NR + 1) / 2)] }'
}
for round in $(seq "$rounds"); do
    alone=$(step env -- "training.threads=$workers")
    eight=$(step env -- "training.threads=$workers" training.shards=8)
    shared=$(step mpirun -q --bind-to none -n "$workers" -- training.threads=1)
    awk -v round="$round" -v alone="$alone" -v eight="$eight" -v shared="$shared" -v workers="$workers" 'BEGIN {
        printf "round %d: one worker %d ms, eight shards %d ms (%.3f), %d workers %d ms (efficiency %.3f)\n",
            round, alone, eight, eight / alone, workers, shared, alone / shared }'
done
