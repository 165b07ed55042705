#!/usr/bin/env bash
# Compares the predictions of `scale` with real runs of the same config, for two and four workers in network namespaces
# of this machine, connected by slowed links. Needs root, Open MPI and Python, and either netem in the kernel or
# iptables and a C compiler. Takes four minutes, during which nothing else should run: workers get priority if the
# kernel allows it.
#   cargo build --release --features mpi && benches/scale_check.sh [STEPS]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$PWD/target/release/causal-attention
steps=${1:-60}
config=(--backend ndarray --set model.d_model=192 --set model.layers=4 --set model.heads=4 --set data.length=96
    --set training.batch_size=32 --set training.shards=4 --set training.threads=1)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=$(mktemp -d) link=
rule=(FORWARD -i scale0 -m physdev --physdev-is-bridged -j NFQUEUE --queue-num 0)
clean_up() {
    if [ -n "$link" ]; then kill "$link" && wait "$link" || true; fi
    for i in 1 2 3 4; do ip netns del "10.77.0.$i" || true; done
    ip link del scale0 || true
    [ -x "$work/slow_link" ] && iptables-legacy -D "${rule[@]}" || true
    rm -rf "$work"
} 2>/dev/null
trap clean_up EXIT

# One namespace per worker, named by its address. Each has its own host name, or MPI would treat them as one machine.
ip link add scale0 type bridge
ip addr add 10.77.0.254/24 dev scale0
ip link set scale0 up
for i in 1 2 3 4; do
    ip netns add "10.77.0.$i"
    ip link add "scale$i" type veth peer name eth0 netns "10.77.0.$i"
    ip link set "scale$i" master scale0 up
    ip -n "10.77.0.$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "10.77.0.$i" link set eth0 up
    ip -n "10.77.0.$i" link set lo up
done
cat >"$work/agent" <<'AGENT'
#!/bin/sh
host=$1 && shift
exec ip netns exec "$host" unshare -u sh -c "hostname worker-${host##*.}; $*"
AGENT
chmod +x "$work/agent"
netem() { tc -n "10.77.0.$1" qdisc replace dev eth0 root netem rate "$2gbit" delay "$3us" limit 100000; }
if ! netem 1 1 50 2>"$work/why"; then
    echo "notice: using benches/slow_link.c, because netem is not available ($(head -1 "$work/why"))"
    cc -O2 -o "$work/slow_link" benches/slow_link.c
    sysctl -qw net.bridge.bridge-nf-call-iptables=1
    iptables-legacy -I "${rule[@]}"
fi
slow() {
    if [ -x "$work/slow_link" ]; then
        if [ -n "$link" ]; then kill "$link" && wait "$link" || true; fi
        chrt -f 50 "$work/slow_link" "$1" "$2" &
        link=$! && sleep 0.5
    else
        for i in 1 2 3 4; do netem "$i" "$1" "$2"; done
    fi
}
workers() {
    local net=10.77.0.0/24 hosts
    hosts=$(seq -s, -f '10.77.0.%g' 1 "$1")
    mpirun -n "$1" --host "$hosts" --bind-to none --mca plm_rsh_agent "$work/agent" --mca btl tcp,self \
        --mca btl_tcp_if_include $net --mca oob_tcp_if_include $net sh -c \
        'echo -15 >/proc/self/autogroup; exec "$0" "$@"' "$program" "${@:2}" 2>"$work/stderr" || { cat "$work/stderr" && exit 1; }
}
for count in 2 4; do for gbit in 1 10; do for micro in 50 500; do
    slow $gbit $micro
    workers $count scale "${config[@]}" --workers $count..$count --json >"$work/scale.json"
    workers $count train "${config[@]}" --set training.steps="$steps" --set training.log_every=5 \
        --set analysis.circuit=false --run "$work/run" --progress none >/dev/null
    python3 - "$work" "$count workers, $gbit Gbit/s, $micro us" <<'REPORT'
import csv, json, sys
predicted = json.load(open(sys.argv[1] + "/scale.json"))["predicted"][-1]
rows = [row for row in csv.DictReader(open(sys.argv[1] + "/run/metrics.csv")) if row["split"] == "train"]
passed = [float(rows[-1][key]) - float(rows[0][key]) for key in ("seconds", "step")]
shared, real = predicted["shared"]["seconds"], passed[0] / passed[1]
print(f"{sys.argv[2]}: predicted {shared * 1e3:.1f} ms per step, including {predicted['exchange'] * 1e3:.1f} ms of all-reduce; "
      f"measured {real * 1e3:.1f} ms: {(shared / real - 1) * 100:+.1f} %")
REPORT
    rm -rf "$work/run"
done; done; done
