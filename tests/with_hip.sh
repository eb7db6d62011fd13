#!/usr/bin/env bash
# Runs one command where a hipcc for gfx942 is: here, or in the Debian testing root that the tests
# make (tests/setup.sh), at the top of a copy of the sources. What it writes there is not kept.
# FLEET_HIP_RUNTIME, in its environment, is the folder of the simulated MI300X (tests/amdsim).
#
#   tests/with_hip.sh sh -c 'LD_LIBRARY_PATH=$FLEET_HIP_RUNTIME PROGRAM'
#   tests/with_hip.sh sh -c 'hipcc --offload-arch=gfx942 -x hip -S -o - --offload-device-only FILE'
set -eu
# shellcheck source=tests/setup.sh
. "$(dirname "$0")/setup.sh"
[ $# -gt 0 ] || die "usage: tests/with_hip.sh COMMAND..."
trap hip_leave EXIT
mkdir -p "$repo/tests/build"
hip_setup
hip_simulator
hip_run "$@"
