#!/usr/bin/env bash
# What two pools tell each other (edges 36 to 38 of fleet_server.h): serving_pools.c on the chiplet-memory model, with one fence
# or wait after another taken out of a copy of the header. Each must show.
#
#   OUT=FOLDER [MODEL_FLAGS="FLAGS"] tests/host/pools_model.sh
set -eu
# shellcheck source=tests/turn.sh
. tests/turn.sh

server=examples/parts/fleet_server.h
mkdir -p "$OUT/examples/parts"
cp $server "$OUT/$server"
names=()

# bug NAME OLD NEW: OLD stands exactly once in the header. In NEW, @ is whether the bug is switched on.
bug() {
    local file=$OUT/$server text rest
    names+=("$1")
    text=$(cat "$file")
    rest=${text/"$2"/}
    if [ "$rest" = "$text" ] || [ "${rest/"$2"/}" != "$rest" ]; then
        echo "FAIL $1: not exactly once in $server: $2"
        exit 1
    fi
    printf '%s\n' "${text/"$2"/"${3//@/(mutant() == ${#names[@]})}"}" >"$file"
}

bug "turn: no release" '    fleeti_write_back_device();
    if (fleet_lane() == 0) fleeti_publish_device(&p->turn.word' '    if (!@) fleeti_write_back_device();
    if (fleet_lane() == 0) fleeti_publish_device(&p->turn.word'
bug "turn, tiles: no acquire" '    fleeti_invalidate_device();
    fleet_wave_barrier();
    if (status && fleet_lane() == 0)
        fleeti_task_ends_run' '    if (!@) fleeti_invalidate_device();
    fleet_wave_barrier();
    if (status && fleet_lane() == 0)
        fleeti_task_ends_run'
bug "layer: no release" '    fleeti_write_back_device();
    fleeti_publish_device(&p->handed_out.word' '    if (!@) fleeti_write_back_device();
    fleeti_publish_device(&p->handed_out.word'
bug "layer: no acquire" '            fleeti_invalidate_device();
            fleet_wave_barrier();
            found' '            if (!@) fleeti_invalidate_device();
            fleet_wave_barrier();
            found'
bug "tiles: no release" '                fleeti_write_back_device();
                if (fleet_lane() == 0) fleeti_add_arrival_device(&p->run.word' \
    '                if (!@) fleeti_write_back_device();
                if (fleet_lane() == 0) fleeti_add_arrival_device(&p->run.word'
bug "tiles: no wait" 'status = fleeti_tile_awaits(ctx, &p->run.word, end, 0);' \
    'status = @ ? FLEET_OK : fleeti_tile_awaits(ctx, &p->run.word, end, 0);'

cat >"$OUT/mutant.h" <<'END'
#include <stdint.h>
#include <stdlib.h>
static uint32_t mutant(void) /* the bug that is switched on; 0: none */
{
    static uint32_t number = ~0u;
    if (number == ~0u) number = getenv("MUTANT") ? (uint32_t)atoi(getenv("MUTANT")) : 0;
    return number;
}
END

# From standard input: -iquote does not come before the folder of a file.
# shellcheck disable=SC2086
examples/tools/memory_model.sh -std=c11 -w ${MODEL_FLAGS:-} -include "$OUT/mutant.h" "-iquote$OUT" -I. -Itests -Itests/host \
    tests/host/serving_pools.c -o "$OUT/pools"
number=0
for name in none "${names[@]}"; do
    red=
    # Mutants go by turns (tests/README.md).
    [ $number = 0 ] || in_turn $number || {
        number=$((number + 1))
        continue
    }
    # Clients are threads of their own, so that a run may miss a bug: it runs up to ten times, and twice without one. The
    # model reports a bug within a second; a server that then waits for ever is ended after ten, of processors.
    for ((run = 0; run < (number ? 10 : 2) && !${#red}; run++)); do
        (
            [ $number = 0 ] || ulimit -t 10
            MUTANT=$number FLEET_TEST_ENGINE=deterministic exec "$OUT/pools" served
        ) >"$OUT/$number.log" 2>&1 || true
        if [ $number = 0 ]; then
            grep -q '^pass' "$OUT/$number.log" || red=yes
        else
            ! grep -qE ' read: |^FAIL ' "$OUT/$number.log" || red=yes
        fi
    done
    case $name:$red in
    none:yes) echo "FAIL without a bug: $(tail -n 1 "$OUT/$number.log")" ;;
    none:) echo "pass without a bug" ;;
    *:yes) echo "pass $name" ;;
    *) echo "FAIL $name: nothing shows it" ;;
    esac
    number=$((number + 1))
done
