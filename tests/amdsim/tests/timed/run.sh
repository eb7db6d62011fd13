#!/usr/bin/env bash
# The functional tests in timing mode (their results must stay right), that a run repeats exactly, and the
# microbenchmarks with published figures, with the runtime in OUT: run.sh OUT. Prints "pass NAME" and "FAIL NAME: why".
set -u
here=$(cd "$(dirname "$0")" && pwd)
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
figures() { awk '{ for (i = 1; i < NF; i++) if ($1 == "figure" && $i ~ /^[0-9.]+$/ && $(i + 1) ~ /^(us|ns|cycles|M\/s)$/) { print $i; next } }'; }
same() { # within 1 %
    local a b
    a=$(./timed barriers flags 2>&1 | figures)
    b=$(AMDSIM_SEED=7 ./timed barriers flags 2>&1 | figures)
    [ -n "$a" ] && paste <(echo "$a") <(echo "$b") | awk '!($1 > 0) || $2 / $1 > 1.01 || $1 / $2 > 1.01 { bad = 1 } END { exit bad }'
}
run timed/repeats same
run timed/figures ./timed
sed 's/^/| /' <<<"$output"
# Each figure beside what others measured. One that is known to be apart must be so, or the list is out of date.
while read -r line; do echo "$line" && [ "${line#FAIL}" = "$line" ] || failed=1; done < <(
    awk 'FNR == NR && !/^#/ && NF { known[$1 == "apart" ? $2 : $1] = $0; next }
        $1 == "figure" && $2 in known {
            n = split(known[$2], word, " "); k = word[1] == "apart"
            met = $3 >= word[2 + k] && $3 <= word[3 + k]; seen[$2] = 1
            if (met != k) printf "pass timed/published/%s\n", $2
            else printf "FAIL timed/published/%s: %s, published: %s%s\n", $2, $3, known[$2], k ? " (met now: take the word away)" : ""
        }
        END { for (name in known) if (!(name in seen)) printf "FAIL timed/published/%s: no such figure\n", name }' \
        "$here/published" - <<<"$output")
exit $failed
