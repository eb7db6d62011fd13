#!/usr/bin/env bash
# The chiplet-memory model on what it must find and on what it must not: memory_model.c with bugs in copies of
# the headers, each of which must show within a few seeds; and the examples, which must stay right and without a report.
#
#   OUT=FOLDER [MODEL_FLAGS="FLAGS"] tests/host/memory_model.sh
#
# What it builds goes to $OUT; $MODEL_FLAGS are for the compiler, and memory_model.o, where it is compiled already.
set -eu
# shellcheck source=tests/turn.sh
. tests/turn.sh

build() { # ARGUMENTS... -o PROGRAM
    local first=$1
    shift
    # shellcheck disable=SC2086
    examples/tools/memory_model.sh "$first" -std=c11 ${MODEL_FLAGS:-} "$@"
}

device=fleet_device.h sched=fleet_sched.h server=examples/parts/fleet_server.h
mkdir -p "$OUT/examples/parts"
cp fleet.h $device $sched "$OUT"
cp $server "$OUT/$server"
names=() seeds=() number=0

# change FILE OLD NEW: OLD stands exactly once in the header. In NEW, @ is whether the bug is switched on.
change() {
    local file=$OUT/$1 text rest
    text=$(cat "$file")
    rest=${text/"$2"/}
    if [ "$rest" = "$text" ] || [ "${rest/"$2"/}" != "$rest" ]; then
        echo "FAIL $name: not exactly once in $1: $2"
        exit 1
    fi
    printf '%s\n' "${text/"$2"/"${3//@/(mutant == $number)}"}" >"$file"
}
# bug NAME FILE OLD NEW; also FILE OLD NEW: the same bug has a second place.
bug() {
    name=$1 names+=("$1") seeds+=(1) number=$((number + 1))
    shift
    change "$@"
}
also() { change "$@"; }
first_seed() { seeds[-1]=$1; } # that shows the bug, where many do not

release='            fleeti_write_back_device();
        if (before && !first.sub)'

bug "no drain in notify" $device \
    'fleeti_drain(); /* every wave' 'if (!@) fleeti_drain(); /* every wave'
bug "drain in the leader alone" $device \
    'fleeti_drain(); /* every wave' 'if (!@ || fleeti_is_leader(self, group)) fleeti_drain(); /* every wave'
bug "no barrier after the drain" $device \
    'else
            fleeti_barrier(self);
    } else {
        if (may_veto)' 'else if (!@)
            fleeti_barrier(self);
    } else {
        if (may_veto)'
also $device \
    'fleeti_lds_put(self.lds, FLEETI_LDS_VOTE(turn), 1);
    fleeti_barrier(self);' 'fleeti_lds_put(self.lds, FLEETI_LDS_VOTE(turn), 1);
    if (!@) fleeti_barrier(self);'
bug "no release" $device "$release" "if (!@) $release"
bug "release at chiplet scope" $device "$release" "if (@) fleeti_drain(); else $release"
bug "release once, before further sub-counters" $device \
    'due |= 1u << i;' 'if (@ && !due) fleeti_write_back_device();
            due |= 1u << i;'
also $device "$release" "if (!@) $release"
first_seed 236
bug "release before the sub-counter, not after" $device \
    'if (r.sub && fleeti_rmw_device(c.device + r.sub, 1) + 1 != epoch * r.share) continue;' \
    'if (@ && (!r.sub || fleeti_poll_device(c.device + r.sub) + 1 == epoch * r.share))
                fleeti_write_back_device();
            if (r.sub && fleeti_rmw_device(c.device + r.sub, 1) + 1 != epoch * r.share) continue;'
also $device "$release" "if (!@) $release"
bug "no release at system scope" $device \
    '            fleeti_write_back_system();
        else' '        { if (!@) fleeti_write_back_system(); }
        else'
bug "no acquire in wait" $device \
    '        fleeti_invalidate(scope);
    }
    /* Any lane' '        if (!@) fleeti_invalidate(scope);
    }
    /* Any lane'
bug "acquire at chiplet scope in wait" $device \
    'failed = (uint32_t)fleeti_poll_all(c, first, records, n, epoch, watch, diagnostics);' \
    'failed = (uint32_t)fleeti_poll_all(c, first, records, n, epoch, watch, diagnostics);
        if (@ && scope > FLEET_SCOPE_CHIPLET) scope = FLEET_SCOPE_CHIPLET;'
bug "no acquire in test" $device \
    'if (done) fleeti_invalidate(scope);' 'if (done && !@) fleeti_invalidate(scope);'
bug "no acquire at chiplet scope" $device \
    'fleeti_invalidate_chiplet();
    else' '{ if (!@) fleeti_invalidate_chiplet(); }
    else'
bug "no barrier after the acquire" $device \
    'failed = fleeti_block_any(self, failed);' 'if (!@) failed = fleeti_block_any(self, failed);'
bug "no acquire at system scope" $device \
    'else if (scope == FLEET_SCOPE_SYSTEM)
        fleeti_invalidate_system();' 'else if (scope == FLEET_SCOPE_SYSTEM && !@)
        fleeti_invalidate_system();'
bug "each of a rank stores to the others" $device \
    '!= epoch * f->target) return;' '!= epoch * f->target && !@) return;'
bug "no acquire after the mailbox" $sched \
    'fleeti_invalidate((fleet_scope)(mail >> 46 & 3));' 'if (!@) fleeti_invalidate((fleet_scope)(mail >> 46 & 3));'
bug "mailbox: acquire at chiplet scope" $sched \
    'fleeti_invalidate((fleet_scope)(mail >> 46 & 3));' 'fleeti_invalidate(@ ? FLEET_SCOPE_CHIPLET : (fleet_scope)(mail >> 46 & 3));'
bug "the last of a chiplet is one too early" $device \
    '!= epoch * r.share) continue;' '+ @ != epoch * r.share) continue;'
bug "add_acq_rel_device: no drain" $device \
    'fleeti_drain();
    fleeti_write_back_device();
    uint32_t old' 'if (!@) fleeti_drain();
    fleeti_write_back_device();
    uint32_t old'
bug "add_acq_rel_device: no release" $device \
    'fleeti_write_back_device();
    uint32_t old' 'if (!@) fleeti_write_back_device();
    uint32_t old'
bug "add_acq_rel_device: no acquire" $device \
    'old = fleeti_rmw_device(at, value);
    fleeti_invalidate_device();' 'old = fleeti_rmw_device(at, value);
    if (!@) fleeti_invalidate_device();'
bug "ring of messages: no drain" $server \
    'fleeti_drain();
    fleet_wave_barrier();
    fleeti_write_back_system();' 'if (!@) fleeti_drain();
    fleet_wave_barrier();
    fleeti_write_back_system();'
bug "ring of messages: no release" $server \
    'fleet_wave_barrier();
    fleeti_write_back_system();' 'fleet_wave_barrier();
    if (!@) fleeti_write_back_system();'
bug "ring of messages: no acquire" $server \
    'fleeti_invalidate_system();
    fleet_wave_barrier();' 'if (!@) fleeti_invalidate_system();
    fleet_wave_barrier();'
bug "a poll by a plain load" $device \
    'FLEET_DEVICE uint32_t fleeti_poll_device(const uint32_t *at)
{
    fleeti_host_yield();' 'FLEET_DEVICE uint32_t fleeti_poll_device(const uint32_t *at)
{
    fleeti_host_yield();
    if (@) return *(const volatile uint32_t *)at;'

{
    echo '#include <stdint.h>'
    echo 'static uint32_t mutant; /* the bug that is switched on; 0: none */'
    echo "#define MUTANT_NARROW $((number + 1))u /* and the next: not in the headers, but in the plan */"
    echo 'static const char *const mutant_names[] = {"none",'
    printf '    "%s",\n' "${names[@]}"
    echo '    "plan: chiplet scope where a lone producer should release", "plan: acquires at chiplet scope", 0};'
    echo 'static const uint32_t first_seeds[] = {1,'
    printf '    %d,\n' "${seeds[@]}"
    echo '    1, 1};'
} >"$OUT/mutants.h"

# -iquote: before tests/.., where the headers are as they should be.
build -w -DMUTANTS -include "$OUT/mutants.h" "-iquote$OUT" -Itests tests/host/memory_model.c -o "$OUT/mutants"
"$OUT/mutants" 2>"$OUT/mutants.reports" || true # it prints its own failures

# runs_of EXAMPLE: the words of each of its runs, a line each; their seeds count from 1. The model takes some 20 ns
# for each load and store, and example 07 has three batches of many runs: a layer of half the width, with only the smallest
# batch, and once with two tiles of rows, the second of which is not full.
runs_of() {
    case $1:${FLEET_DEEP:-} in
    07_*:) printf '%s\n' "--batch 1" "--batch 17" ;;
    *) printf '%s\n' "" "" "" "" ;;
    esac
}

# From standard input: a file in $OUT would include the copies that are there.
{ echo '#define FLEET_IMPLEMENTATION' && printf '#include "%s"\n' examples/parts/fleet_linear.h $server; } | build -c -I. -x c - -o "$OUT/implementation.o"
whole_width='full ? 1 : 32;' turn=0
for file in examples/[0-9][0-9]_*.c; do
    name=$(basename "$file" .c)
    case $name in 08_*) continue ;; esac # its bugs are meant: find_the_bug.sh
    turn=$((turn + 1))
    in_turn $turn || continue
    case $name:${FLEET_DEEP:-} in
    07_*:)
        grep -q "$whole_width" "$file" || echo "FAIL $name: no longer has $whole_width"
        sed "s/$whole_width/full ? 1 : 64;/" "$file" >"$OUT/examples/$name.c"
        file=$OUT/examples/$name.c
        ;;
    esac
    build -I. -Iexamples -include tests/host/modelled.h "$file" "$OUT/implementation.o" -o "$OUT/$name"
    why= seed=0
    while read -r words; do
        seed=$((seed + 1))
        # shellcheck disable=SC2086
        FLEET_TEST_SEED=$seed "$OUT/$name" $words >"$OUT/$name.log" 2>&1 </dev/null ||
            why="${why:-seed $seed: $(tail -n 1 "$OUT/$name.log")}"
        ! grep -q " read: " "$OUT/$name.log" || why="${why:-seed $seed: $(grep -m 1 " read: " "$OUT/$name.log")}"
    done < <(runs_of "$name")
    if [ -n "$why" ]; then echo "FAIL $name: $why"; else echo "pass $name"; fi
done
