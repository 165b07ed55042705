#!/bin/sh
# Compares this program with nanoGPT on the CPU setup of nanoGPT's README (4 layers, width 128, 64 characters of
# context, 2,000 steps), from the start of the program to the saved weights. Runs alternating pairs, so that other load
# on the machine affects both. Both evaluate with their defaults; this program also analyses the model and draws plots.
# Prints seconds and ratios (below 1: faster).
#
#     benches/characters_against_nanogpt.sh NANOGPT TEXT
#
# NANOGPT is a clone of karpathy/nanoGPT, TEXT is the tinyshakespeare of its data/shakespeare_char. Needs python3
# with torch, numpy and requests (PYTHON names another interpreter). Runs ROUNDS pairs (3) with THREADS threads each
# (2).
set -eu
[ $# = 2 ] || { echo "usage: $0 NANOGPT TEXT" >&2; exit 2; }
nanogpt=$(cd "$1" && pwd)
text=$(realpath "$2")
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
threads=${THREADS:-2}
export OMP_NUM_THREADS="$threads"

cargo build --release --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$text" "$nanogpt/data/shakespeare_char/input.txt"
"$python" "$nanogpt/data/shakespeare_char/prepare.py" >/dev/null

now() { date +%s.%N; }
for round in $(seq "${ROUNDS:-3}"); do
    a=$(now)
    target/release/causal-attention train assets/configs/characters.toml --run "$work/$round" --progress none \
        --set data.path="$text" --set training.threads="$threads" >"$work/ours"
    b=$(now)
    (cd "$nanogpt" && "$python" train.py config/train_shakespeare_char.py --out_dir="$work/nanogpt" --device=cpu \
        --compile=False --eval_iters=20 --log_interval=100 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4 \
        --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0 >"$work/theirs")
    c=$(now)
    awk "BEGIN { ours = $b - $a; theirs = $c - $b
        printf \"$round: %.1f s to %.1f s, %.3f\n\", ours, theirs, ours / theirs }"
done
