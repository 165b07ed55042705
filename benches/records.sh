#!/bin/sh
# Measures the presets for character-level text on tinyshakespeare: the loss over the validation split after the last
# step, the lowest validation loss (the loss of the written weights), and the seconds from the start of the program to
# these weights. Prints means over seeds, and standard deviations of the losses. The presets of a seed run one after
# another, so that other load on the machine affects all of them.
#
#     benches/records.sh TEXT [PRESET[,key=value..]..]
#
# TEXT is the tinyshakespeare of nanoGPT's data/shakespeare_char; a preset's keys may be overridden. The default presets
# are characters and characters_quick. Runs SEEDS seeds (5) with THREADS threads (2).
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
            >/dev/null 2>"$work/stderr" </dev/null || { cat "$work/stderr" >&2; exit 1; }
        ended=$(stat -c %.Y "$run/model.safetensors")
        losses=$(awk -F, '$3 == "valid" { last = $4; if (!n++ || last < lowest) lowest = last }
            END { print last ", " lowest }' "$run/metrics.csv")
        rm -r "$run"
        awk "BEGIN { print \"$preset\", $losses, $ended - $begun }" | tee -a "$work/all"
    done
done
for preset in "$@"; do
    awk -v preset="$preset" '
        function deviation(sum, squares) {
            variance = squares - sum * sum / n
            return (n > 1 && variance > 0) ? sqrt(variance / (n - 1)) : 0
        }
        $1 == preset { n++; last += $2; last_squares += $2 * $2; lowest += $3; squares += $3 * $3; seconds += $4 }
        END { printf "%s: %.4f nats after the last step (standard deviation %.4f), lowest %.4f (%.4f), %.1f s, %d seeds\n",
                preset, last / n, deviation(last, last_squares), lowest / n, deviation(lowest, squares), seconds / n, n
        }' "$work/all"
done
