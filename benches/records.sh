#!/bin/sh
# The presets for text by characters on tinyshakespeare: loss over the whole validation tail after the last step, and
# seconds from the start of the program to its written weights, mean and standard deviation over seeds. The presets of a
# seed run one after another, so that whatever else the machine does falls on all of them.
#
#     benches/records.sh TEXT [PRESET[,key=value..]..]
#
# TEXT is the tinyshakespeare of nanoGPT's data/shakespeare_char; a preset's keys may be overridden. Without presets:
# characters and characters_quick. SEEDS seeds (5), THREADS threads (2).
set -eu
[ $# -ge 1 ] || { echo "usage: $0 TEXT [PRESET[,key=value..]..]" >&2; exit 2; }
text=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- characters characters_quick
cargo build --release --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for seed in $(seq 0 $((${SEEDS:-5} - 1))); do
    for preset in "$@"; do
        sets=
        for set in $(echo "$preset" | tr , '\n' | tail -n +2); do sets="$sets --set $set"; done
        run="$work/run"
        begun=$(date +%s.%N)
        target/release/causal-attention train "assets/configs/${preset%%,*}.toml" --run "$run" --progress none $sets \
            --set data.path="$text" --set run.seed="$seed" --set training.threads="${THREADS:-2}" \
            >/dev/null 2>"$work/said" </dev/null || { cat "$work/said" >&2; exit 1; }
        ended=$(stat -c %.Y "$run/model.safetensors")
        loss=$(awk -F, '$3 == "valid" { loss = $4 } END { print loss }' "$run/metrics.csv")
        rm -r "$run"
        awk "BEGIN { print \"$preset\", $loss, $ended - $begun }" | tee -a "$work/all"
    done
done
for preset in "$@"; do
    awk -v preset="$preset" '
        $1 == preset { n++; loss += $2; squares += $2 * $2; seconds += $3 }
        END { mean = loss / n; variance = squares / n - mean * mean
            deviation = (n > 1 && variance > 0) ? sqrt(variance * n / (n - 1)) : 0
            printf "%s: %.4f nats (standard deviation %.4f), %.1f s, %d seeds\n",
                preset, mean, deviation, seconds / n, n }' "$work/all"
done
