#!/usr/bin/env bash
# Runs the test programs under several settings, with the runtime in OUT: run.sh OUT. Prints "pass NAME" and
# "FAIL NAME: why", and the end of what a program that failed has printed. Programs of "run fail" are wrong on purpose;
# the incoherent model has to show it.
set -u
cd "$1/tests" || exit
export LD_LIBRARY_PATH=$1
failed=0
run() { # pass|fail NAME WORDS: a command, with variables before it
    local want=$1 name=$2 output rc got=pass
    shift 2
    output=$(timeout 300 env "$@" 2>&1)
    rc=$?
    [ $rc -eq 0 ] || got=fail
    [ $rc -lt 124 ] || got=crash
    if [ $got = "$want" ]; then
        echo "pass $name"
    else
        failed=1
        echo "FAIL $name: status $rc, expected to $want"
        tail -n 15 <<<"$output"
    fi
}
for t in vadd ops device host graph runtime print hazards; do
    run pass "$t" "./$t"
    run pass "$t/coherent" AMDSIM_MODE=coherent AMDSIM_DELAY=0 "./$t"
    run pass "$t/delay_3" AMDSIM_DELAY=3 AMDSIM_SEED=7 "./$t"
done
run pass vadd/random_placement AMDSIM_XCD_MAP=random ./vadd
run pass vadd/one_xcd AMDSIM_XCDS=1 AMDSIM_CUS=4 ./vadd
for t in vadd host hazards; do run pass "$t/timed" AMDSIM_MODE=timed ./$t; done
for f in oob lds misaligned trap; do run pass "fault/$f" ./faults $f; done
run pass fault/deadlock AMDSIM_MAX_INSTS=200000 ./faults spin
for v in correct fencewave; do
    for s in 1 2 3; do run pass "barrier/$v/seed_$s" AMDSIM_SEED=$s ./barrier_$v; done
    run pass "barrier/$v/stress" AMDSIM_DELAY=10 AMDSIM_EVICT=200 AMDSIM_STALL=300 AMDSIM_SKEW=500 ./barrier_$v
done
run pass barrier/correct/strict AMDSIM_STRICT=1 ./barrier_correct
for v in plain waitvm relwait fenceall broken noacq; do
    run pass "barrier/$v/coherent" AMDSIM_MODE=coherent AMDSIM_DELAY=0 ./barrier_$v
    run fail "barrier/$v/must_fail" AMDSIM_DELAY=3 ./barrier_$v
done
for d in 3 20; do
    for c in all_waits own_store own_load; do run pass "fences/$c/delay_$d" AMDSIM_DELAY=$d ./fences $c; done
    for c in other_store no_wait_wb other_load; do run fail "fences/$c/delay_$d/must_fail" AMDSIM_DELAY=$d ./fences $c; done
    run pass "fences/all_waits/strict/delay_$d" AMDSIM_STRICT=1 AMDSIM_DELAY=$d ./fences all_waits
    for c in own_store own_load; do run fail "fences/$c/strict/delay_$d/must_fail" AMDSIM_STRICT=1 AMDSIM_DELAY=$d ./fences $c; done
done
for s in 1 2; do
    run pass "fences/relay/seed_$s" AMDSIM_XCDS=2 AMDSIM_SEED=$s ./fences relay
    run fail "fences/relay_l1/seed_$s/must_fail" AMDSIM_XCDS=2 AMDSIM_SEED=$s ./fences relay_l1
done
for c in all_waits other_load; do run pass "fences/$c/coherent" AMDSIM_MODE=coherent AMDSIM_DELAY=0 ./fences $c; done
run pass peers/api AMDSIM_DEVICES=2 ./peers api
for d in ${FLEET_DEEP:+3} 20; do
    for c in fine by_another next_kernel; do
        run pass "peers/$c/delay_$d" AMDSIM_DEVICES=2 AMDSIM_DELAY=$d ./peers $c
        run pass "peers/$c/evict/delay_$d" AMDSIM_DEVICES=2 AMDSIM_DELAY=$d AMDSIM_EVICT=500 ./peers $c
    done
    for c in no_release agent_release no_acquire agent_acquire not_by_another coarse; do
        run fail "peers/$c/delay_$d/must_fail" AMDSIM_DEVICES=2 AMDSIM_DELAY=$d ./peers $c
    done
done
for c in fine no_release coarse; do run pass "peers/$c/coherent" AMDSIM_DEVICES=2 AMDSIM_MODE=coherent AMDSIM_DELAY=0 ./peers $c; done
run pass gfx950 AMDSIM_ARCH=gfx950 ./gfx950
run pass perf ./perf
exit $failed
