#!/bin/sh
# Runs the kernels' tests under valgrind, which fails on reads of uninitialised memory or beyond an allocation.
# Takes ten minutes. valgrind does not support AVX-512, so the kernels and `gemm` use AVX2.
#
#     tests/valgrind.sh [TEST..]
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is not installed; install it from your system's packages" >&2; exit 2; }
tests=$(cargo test --release --package causal-attention-kernels --lib --no-run --message-format=json |
    sed -n 's/.*"kind":\["lib"\].*"executable":"\([^"]*\)".*/\1/p')
# The skipped tests start other processes.
exec valgrind --error-exitcode=1 "$tests" "$@" --test-threads 1 --skip instruction_sets
