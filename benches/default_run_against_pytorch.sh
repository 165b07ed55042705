#!/bin/sh
# Compares the complete default run, from the start to the last plot, with PyTorch, in alternating pairs, so that other
# load on the machine affects both. PyTorch is imported and trains a model of the same sizes on one batch for as many
# steps; it does not validate, save or draw. Prints seconds and ratios (below 1: faster).
#
#     benches/default_run_against_pytorch.sh
#
# Needs python3 with torch (PYTHON names another interpreter) and a C++ compiler, which torch.compile calls.
# Runs ROUNDS pairs (3) with THREADS threads each (2); EAGER=1 runs PyTorch without its compiler.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
threads=${THREADS:-2}
compile=--compile
[ -z "${EAGER:-}" ] || compile=

"$python" -c 'import torch' || { echo "$python lacks torch; run 'pip install torch' or set PYTHON" >&2; exit 2; }
cargo build --release --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

now() { date +%s.%N; }
for round in $(seq "${ROUNDS:-3}"); do
    a=$(now)
    target/release/causal-attention train config.toml --run "$work/$round" --progress none \
        --set training.threads="$threads" >"$work/ours"
    b=$(now)
    "$python" benches/pytorch_step.py default $compile --threads "$threads" --steps 4000 --rounds 1 >"$work/theirs"
    c=$(now)
    awk "BEGIN { ours = $b - $a; theirs = $c - $b
        printf \"$round: %.1f s to %.1f s, %.3f\n\", ours, theirs, ours / theirs }"
done
