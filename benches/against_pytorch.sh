#!/bin/sh
# Compares a training step with PyTorch's torch.compile in alternating pairs, so that other load on the
# machine affects both. Prints the ratios of time (below 1: faster than PyTorch) and peak memory for each
# pair, and their medians.
#
#     benches/against_pytorch.sh [SHAPE..]
#
# Needs python3 with torch (PYTHON names another interpreter) and a C++ compiler, which torch.compile calls.
# Runs ROUNDS pairs per shape (5) with THREADS threads each (2). EAGER=1 runs PyTorch without its compiler.
# PRECISION=bf16 rounds the operands of matrix products on both sides, in PyTorch with torch.autocast.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
rounds=${ROUNDS:-5}
threads=${THREADS:-2}
compile=--compile
[ -z "${EAGER:-}" ] || compile=
precision=
[ "${PRECISION:-f32}" = f32 ] || precision=--${PRECISION}

"$python" -c 'import torch' || { echo "$python lacks torch; run 'pip install torch' or set PYTHON" >&2; exit 2; }
step=$(cargo bench --bench step --no-run --message-format=json |
    sed -n 's/.*"name":"step".*"executable":"\([^"]*\)".*/\1/p')

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

[ $# -gt 0 ] || set -- one_layer small medium
for shape in "$@"; do
    times=
    memories=
    for round in $(seq "$rounds"); do
        ours=$("$step" "$shape" $precision --threads "$threads" --rounds 3)
        theirs=$("$python" benches/pytorch_step.py "$shape" $compile $precision --threads "$threads" --rounds 3)
        ours_ms=$(echo "$ours" | field ms_per_step)
        theirs_ms=$(echo "$theirs" | field ms_per_step)
        ours_mb=$(echo "$ours" | field peak_mb)
        theirs_mb=$(echo "$theirs" | field peak_mb)
        time=$(awk "BEGIN { printf \"%.3f\", $ours_ms / $theirs_ms }")
        memory=$(awk "BEGIN { printf \"%.3f\", $ours_mb / $theirs_mb }")
        echo "$shape $round: $ours_ms ms to $theirs_ms ms, $time; $ours_mb MB to $theirs_mb MB, $memory"
        times="$times $time"
        memories="$memories $memory"
    done
    echo "$shape: median of the ratios: time $(echo "$times" | tr ' ' '\n' | grep . | median)," \
        "memory $(echo "$memories" | tr ' ' '\n' | grep . | median)"
done
