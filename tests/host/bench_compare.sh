#!/usr/bin/env bash
# The table of tests/bench/compare.sh, from measurements that are made up: what it calls worse, and its statuses.
#
#   OUT=FOLDER tests/host/bench_compare.sh
set -eu
mkdir -p "$OUT"

# expect NAME STATUS PATTERN LINE...: the lines are "SIDE ROUND NAME VALUE UNIT".
expect() {
    local name=$1 status=$2 pattern=$3 rc=0
    shift 3
    printf '%s\n' "$@" | tr ' ' '\t' >"$OUT/measured.tsv"
    python3 tests/bench/compare.py "$OUT/measured.tsv" >"$OUT/log" 2>&1 || rc=$?
    if [ $rc = "$status" ] && grep -qE "$pattern" "$OUT/log"; then
        echo "pass $name"
    else
        echo "FAIL $name: status $rc, expected $status and $pattern: $(tail -n 1 "$OUT/log")"
    fi
}
expect a_loss_in_each_round_is_worse 3 '^\| a \| 10 ms \| 10.2 ms \| 1.020 \| 1.010 to 1.030 \| \*\*worse\*\* \|$' \
    'old 0 a 10 ms' 'new 0 a 10.1 ms' 'new 1 a 10.3 ms' 'old 1 a 10 ms'
expect a_loss_in_some_rounds_is_marked 3 '\*\*worse\?\*\*' \
    'old 0 a 10 ms' 'new 0 a 9.9 ms' 'old 1 a 10 ms' 'new 1 a 11 ms'
expect up_to_the_bound_is_not_worse 0 '^\| a \|.* 1.010 \|' 'old 0 a 10 ms' 'new 0 a 10.1 ms'
expect a_higher_rate_is_better 0 '^\| a \|.* 0.500 \|' 'old 0 a 10 M/s' 'new 0 a 20 M/s'
expect a_lower_rate_is_worse 3 '^\| a \|.* 2.000 \|.*worse' 'old 0 a 20 M/s' 'new 0 a 10 M/s'
expect ratios_are_taken_within_rounds 0 '^\| a \|.* 0.900 \| 0.900 to 0.900 \|' \
    'old 0 a 10 ms' 'new 0 a 9 ms' 'old 1 a 20 ms' 'new 1 a 18 ms'
expect a_new_figure_has_no_ratio 0 '^\| a \| \| 9 ms \| \| \| \|$' 'new 0 a 9 ms'
expect a_lost_figure_is_named 1 'new has no figure for: a' 'old 0 a 9 ms' 'old 0 b 1 us' 'new 0 b 1 us'
expect nothing_is_an_error 1 'nothing was measured'
