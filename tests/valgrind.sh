#!/bin/sh
# The kernels' tests under valgrind, which fails where a number is read that nobody wrote, or one beyond an
# allocation. Ten minutes. Needs valgrind, and the processor that it knows: kernels and `gemm` ask which
# instructions there are, and take AVX2 where AVX-512 is hidden from them.
#
#     tests/valgrind.sh [TEST..]
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "no valgrind here: install it from your system's packages" >&2; exit 2; }
tests=$(cargo test --release --package causal-attention-kernels --lib --no-run --message-format=json |
    sed -n 's/.*"kind":\["lib"\].*"executable":"\([^"]*\)".*/\1/p')
# What is skipped starts processes of its own.
exec valgrind --error-exitcode=1 "$tests" "$@" --test-threads 1 --skip instruction_sets
