#!/usr/bin/env bash
# The plans of locality.c as gfx942 code on the simulated MI300X, its counters beside those of cache_sim.h.
# By hand, minutes:
#
#   tests/with_hip.sh bash tests/bench/locality_gpu.sh [BATCH...]       default: 1 32 64
set -eu
cd "$(dirname "$0")/../.."
out=tests/build/bench
mkdir -p "$out"
hipcc -x hip -std=c++17 -O2 --offload-arch=gfx942 -I. tests/bench/locality_gpu.c -o "$out/locality_gpu"
[ $# -gt 0 ] || set -- 1 32 64
kinds=(M-tile M-split Mirage-like)
for batch in "$@"; do
    for kind in 0 1 2; do
        echo "B = $batch, ${kinds[kind]}"
        AMDSIM_STATS=1 LD_LIBRARY_PATH=${FLEET_HIP_RUNTIME:-} "$out/locality_gpu" "$batch" $kind 2>&1 |
            awk '
                /^amdsim: / { layer = /layer_kernel/ }
                layer && /buffer_wbl2/ { sub(/.*buffer_wbl2 /, ""); writes = $1 + 0 }
                layer && /L2 hits\/misses/ {
                    for (i = 5; i <= NF; i++) { split($i, n, "/"); hits += n[1]; misses += n[2] }
                }
                /^cache_sim: |^the plan: |^ok: |^FAIL: / { print "    " $0 }
                END {
                    if (hits + misses)
                        printf "    amdsim:    hits %.1f %%, lines read %d; write-backs %d\n",
                            100 * hits / (hits + misses), misses, writes
                }'
    done
done
