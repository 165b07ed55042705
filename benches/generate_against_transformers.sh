#!/bin/sh
# Compares tokens per second with transformers' generate in alternating pairs, so that other load on the machine affects
# both. The models are a GPT-2 with 124 million random weights and a Llama with 135 million. The prompt has 64 tokens,
# and 128 are generated, with batch size 1. Prints the ratio of speeds for each pair (above 1: faster than
# transformers), the time of our step relative to the limit set by memory bandwidth, and the medians.
#
#     benches/generate_against_transformers.sh [gpt2|llama]
#
# Needs python3 with torch and transformers (PYTHON names another interpreter). Runs ROUNDS pairs (5) with THREADS
# threads each (2).
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
shape=${1:-gpt2}
rounds=${ROUNDS:-5}
export RAYON_NUM_THREADS="${THREADS:-2}"

"$python" -c 'import torch, transformers' ||
    { echo "$python lacks transformers; run 'pip install torch transformers' or set PYTHON" >&2; exit 2; }
generate=$(cargo bench --bench generate --no-run --message-format=json |
    sed -n 's/.*"name":"generate".*"executable":"\([^"]*\)".*/\1/p')

field() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p"; }
median() { sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

ratios=
limits=
for round in $(seq "$rounds"); do
    ours=$("$generate" "$shape")
    theirs=$("$python" benches/pytorch_generate.py "$shape" --threads "$RAYON_NUM_THREADS")
    ours_speed=$(echo "$ours" | field tokens_per_second)
    theirs_speed=$(echo "$theirs" | field tokens_per_second)
    limit=$(echo "$ours" | field step_over_limit)
    ratio=$(awk "BEGIN { printf \"%.3f\", $ours_speed / $theirs_speed }")
    echo "$round: $ours_speed to $theirs_speed tokens/s, $ratio; a step takes $limit times the limit"
    ratios="$ratios $ratio"
    limits="$limits $limit"
done
echo "medians: $(echo "$ratios" | tr ' ' '\n' | grep . | median) times the speed of transformers," \
    "a step takes $(echo "$limits" | tr ' ' '\n' | grep . | median) times the limit"
