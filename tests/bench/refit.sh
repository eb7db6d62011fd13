#!/usr/bin/env bash
# The constants of the simulated MI300X's model of time, from what tests/bench/on_amd.sh has measured: a table, and the line
# for AMDSIM_TIMING, whose values may become the defaults (tests/amdsim/src/timing.h). Takes some minutes.
#
#   tests/bench/refit.sh [REPORT]      default: tests/build/bench/on_amd.txt
set -eu
cd "$(dirname "$0")/../.."
report=${1:-tests/build/bench/on_amd.txt}
# shellcheck source=tests/setup.sh
. tests/setup.sh
[ -r "$report" ] || die "$report cannot be read: tests/bench/on_amd.sh writes it on a machine with an AMD GPU"
trap hip_leave EXIT
mkdir -p tests/build
hip_setup
hip_simulator
hip_install python3
hip_run mkdir -p tests/build/refit
hip_run tee tests/build/refit/report >/dev/null <"$report"
hip_run hipcc --offload-arch=gfx942 -O2 -std=c++17 -w tests/amdsim/tests/timed/timed.hip -o tests/build/refit/timed -pthread
hip_run env "LD_LIBRARY_PATH=$hip_runtime" python3 -B tests/bench/refit.py tests/build/refit/report tests/amdsim/src/timing.h \
    tests/build/refit/timed
