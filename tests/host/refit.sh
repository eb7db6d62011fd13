#!/usr/bin/env bash
# tests/bench/refit.py with a made-up simulator, whose figures follow its constants in a simple way: the constants of a report
# are found, those without a figure stay, and a report without figures is refused.
#
#   OUT=FOLDER tests/host/refit.sh
set -eu
mkdir -p "$OUT"
cat >"$OUT/simulator" <<'END'
#!/usr/bin/env python3
import os
c = {"l1_hit": 111.0, "l2_hit": 283.0, "hbm_line": 8.0, "wbl2": 380.0, "clock_mhz": 2100.0, "line_load": 4.0, "atomic": 560.0}
c.update((k, float(v)) for k, v in (p.split("=") for p in os.environ["AMDSIM_TIMING"].split(",") if p))
ns = 1e3 / c["clock_mhz"]
print("figure latency.l1 %g cycles x" % (c["l1_hit"] + 5))
print("figure latency.l2 %g cycles x" % (c["l2_hit"] + 5))
print("figure read.hbm %g TB/s x" % (34.3 / c["hbm_line"]))
print("figure fence.release %g ns x" % ((c["wbl2"] + 30) * ns))
print("figure pollers.736_of_1 %g us x" % (1 + 736 * c["line_load"] * ns / 1e3))
print("figure handover.across %g ns x" % (100 + c["atomic"] * ns * 0.7))
print("figure barrier.two_level 1.5 us x")
END
chmod +x "$OUT/simulator"
refit() { python3 -B tests/bench/refit.py "$OUT/report" tests/amdsim/src/timing.h "$OUT/simulator"; }
expect() { # NAME STATUS PATTERN: of $OUT/report
    local rc=0
    refit >"$OUT/log" 2>&1 || rc=$?
    if [ $rc = "$2" ] && grep -qE "$3" "$OUT/log"; then
        echo "pass $1"
    else
        echo "FAIL $1: status $rc, expected $2 and $3: $(tr '\n' '~' <"$OUT/log")"
    fi
}
cat >"$OUT/report" <<'END'
AMD Instinct MI300X, made up
figure machine.clock_mhz         2000 MHz     x
figure latency.l1                 125 cycles  x
figure read.hbm                  3.43 TB/s    x
figure fence.release              250 ns      x
figure pollers.736_of_1             3 us      x
figure handover.across            200 ns      x
figure barrier.two_level            2 us      x
END
expect latencies_are_found 0 '^\| l1_hit \| 111 \| 120 \| latency.l1 \| 125 \| 125 \|$'
expect rates_are_found 0 '^\| hbm_line \| 8 \| 10 \|'
expect times_follow_the_clock 0 '^\| wbl2 \| 380 \| 470 \|'
expect what_follows_otherwise_is_found_in_rounds 0 '^\| atomic \| 560 \| 2[789][0-9.]* \| handover.across \| 200 \| (19[6-9]|20[0-4])[0-9.]* \|$'
expect one_line_has_all_that_changed 0 '^AMDSIM_TIMING=clock_mhz=2000,l1_hit=120,.*hbm_line=10,wbl2=470$'
expect what_has_no_figure_stays 0 '^AMDSIM_TIMING=clock_mhz=2000,l1_hit=120,atomic='
expect what_no_constant_follows_is_shown 0 '^\| \| \| \| barrier.two_level \| 2 \| 1.5 \|$'
echo 'figure latency.l1 20 cycles x' >"$OUT/report" # less than the 5 cycles that a chase adds and no latency at all
sed -i 's/c\["l1_hit"\] + 5/c["l1_hit"] + 50/' "$OUT/simulator"
expect what_cannot_be_met_is_marked 0 '^\| l1_hit \| 111 \| 0 \| latency.l1 \| 20 \| 50 \*\*apart\*\* \|$'
: >"$OUT/report"
expect a_report_without_figures_is_refused 1 'has none of the figures that constants follow'
