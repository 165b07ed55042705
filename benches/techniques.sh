#!/bin/sh
# Measures the effect of each technique of characters_quick.toml by replacing one technique at a time. Reports the loss
# over the validation split, and the time from the start of the program to its written weights. Compares them with the
# full preset at the same seed: the loss as a difference (mean and 95 % interval over seeds, by Student's t), the time
# as a ratio. The variants of a seed run one after another.
#
#     benches/techniques.sh TEXT [VARIANT]
#
# TEXT is the tinyshakespeare of nanoGPT's data/shakespeare_char. VARIANT selects the variants below whose names contain
# it (all by default). Runs SEEDS seeds (5, at most 10) with THREADS threads (2).
set -eu
[ $# -ge 1 ] || { echo "usage: $0 TEXT [VARIANT]" >&2; exit 2; }
text=$(realpath "$1")
only=${2:-}
cd "$(dirname "$0")/.."
cargo build --release --quiet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

variants() {
    cat <<'VARIANTS'
full preset|
64 characters of context instead of 256|data.length=64 training.batch_size=24
AdamW instead of Muon|training.optimizer=adamw
cosine instead of the trapezoid|training.schedule=cosine
layer norms instead of RMS norms|model.norm_kind=layer
GELU instead of SwiGLU|model.activation=gelu model.d_inner=384
learned positions instead of rotary|model.position=learned
queries and keys without normalisation|model.qk_norm=false
three key-value heads instead of one|model.key_value_heads=3
no momentum warm-up in Muon|training.momentum_warmup=0
projections at the end of each sub-layer start at zero|model.zero_projections=true
products in bf16 instead of f32|training.precision=bf16
VARIANTS
}

for seed in $(seq 0 $((${SEEDS:-5} - 1))); do
    variants | grep -e "^full preset" -e "$only" | while IFS='|' read -r name keys; do
        sets=
        for key in $keys; do sets="$sets --set $key"; done
        begun=$(date +%s.%N)
        target/release/causal-attention train assets/configs/characters_quick.toml --run "$work/run" --progress none \
            $sets --set data.path="$text" --set run.seed="$seed" --set training.threads="${THREADS:-2}" \
            >/dev/null 2>"$work/stderr" </dev/null || { cat "$work/stderr" >&2; exit 1; }
        ended=$(stat -c %.Y "$work/run/model.safetensors")
        loss=$(awk -F, '$3 == "valid" { loss = $4 } END { print loss }' "$work/run/metrics.csv")
        rm -r "$work/run"
        awk "BEGIN { printf \"%s|%s|%.5f|%.2f\n\", $seed, \"$name\", $loss, $ended - $begun }" | tee -a "$work/all"
    done
done
awk -F'|' '
    BEGIN { split("12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262", t, " ") }
    $2 == "full preset" { full[$1] = $3; time[$1] = $4 }
    !($2 in n) { order[++variants] = $2 }
    { n[$2]++; d = $3 - full[$1]; sum[$2] += d; squares[$2] += d * d; loss[$2] += $3; ratio[$2] += $4 / time[$1] }
    END {
        print ""
        for (i = 1; i <= variants; i++) {
            v = order[i]; mean = sum[v] / n[v]
            variance = (n[v] > 1) ? (squares[v] - n[v] * mean * mean) / (n[v] - 1) : 0
            interval = (variance > 0) ? t[n[v] - 1] * sqrt(variance / n[v]) : 0
            printf "%s: %.4f nats, %+.4f ± %.4f, %.2f of the time\n",
                v, loss[v] / n[v], mean, interval, ratio[v] / n[v]
        }
    }' "$work/all"
