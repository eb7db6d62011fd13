#!/usr/bin/env bash
# Builds and runs the tests; the last line is "N passed, N failed[, N skipped]". tests/README.md says what each group holds and
# how a test file is written.
#
#   ./tests/run.sh [all|deep] [strict] [GROUP[/PROGRAM[/TEST]]...]
#
#   (nothing)   some of each kind of test: at most five minutes on two processors
#   all         what .ci/run runs; so does a group that is named. A program that is named runs whole
#   deep        also what takes longer (FLEET_DEEP=1 for the programs)
#   strict      a skip counts as a failure unless it needs a GPU or nvcc (.ci/run)
#   --list      prints the table of jobs instead: name, size, needs, seconds, turn, what decides it, command
#   --changed[=COMMIT]   only jobs whose deciding files differ from HEAD, or from where this branch left COMMIT
#   --record    writes the seconds of each job to tests/seconds
#
# Missing packages are installed (root or sudo) or named. Environment:
#   FLEET_HIP_RUNTIME   folder of a libamdhip64.so.6, first in the loader's path of HIP programs; without it they
#                       run on the AMD GPU that is here, or on the simulated MI300X (tests/amdsim)
#   FLEET_HIP_ROOT      where the Debian testing root with hipcc is kept, when no hipcc is on PATH
#   FLEET_TEST_TURN     K/N: of what goes by turns, part K of N; empty: all (default: of six, by the number of commits)
#   FLEET_TEST_BASE     jobs whose own files have changed since this commit run whole (default: HEAD~1)
#   JOBS                programs at a time (default: one more than there are processors: some of them wait)
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages python3:python3
rocm_find || true
export PATH=$PATH:/usr/local/cuda/bin
exec python3 -B tests/run.py "$@"
