#!/usr/bin/env bash
# The functional tests in timing mode (their results must stay right), that a run repeats exactly, and the
# microbenchmarks with published figures, with the runtime in OUT: run.sh OUT. Prints "pass NAME" and "FAIL NAME: why".
set -u
cd "$1/tests" || exit
export LD_LIBRARY_PATH=$1 AMDSIM_MODE=timed AMDSIM_DELAY=0
failed=0
run() { # NAME COMMAND...
    local name=$1 rc
    shift
    output=$("$@" 2>&1)
    rc=$?
    if [ $rc = 0 ]; then
        echo "pass $name"
    else
        failed=1
        echo "FAIL $name: status $rc"
        tail -n 15 <<<"$output"
    fi
}
for t in vadd ops device host graph runtime print perf; do run "timed/$t" "./$t"; done
for f in oob lds misaligned trap; do run "timed/fault/$f" ./faults $f; done
run timed/fault/deadlock env AMDSIM_MAX_INSTS=200000 ./faults spin
for v in correct fencewave; do run "timed/barrier/$v" ./barrier_$v; done
run timed/vadd/one_xcd env AMDSIM_XCDS=1 AMDSIM_CUS=4 ./vadd
# The simulated figure of each line. Addresses that the allocator gives differ from run to run, and with them the channels.
figures() { awk '{ for (i = 1; i < NF; i++) if ($i ~ /^[0-9.]+$/ && $(i + 1) ~ /^(us|ns|cycles|M\/s)$/) { print $i; next } }'; }
same() { # within 1 %
    local a b
    a=$(./timed barriers flags 2>&1 | figures)
    b=$(AMDSIM_SEED=7 ./timed barriers flags 2>&1 | figures)
    [ -n "$a" ] && paste <(echo "$a") <(echo "$b") | awk '!($1 > 0) || $2 / $1 > 1.01 || $1 / $2 > 1.01 { bad = 1 } END { exit bad }'
}
run timed/repeats same
run timed/published ./timed
sed 's/^/| /' <<<"$output"
exit $failed
