#!/usr/bin/env bash
# The picture of timeline.c from the simulated MI300X (tests/amdsim, timing mode), as SVG on stdout:
#
#   tests/with_hip.sh bash tests/bench/timeline.sh
#
# Four CUs of each XCD, so that the rows of the picture can be told apart.
set -eu
cd "$(dirname "$0")/../.."
out=tests/build/bench
mkdir -p "$out"
hipcc -x hip -std=c++17 -O2 -Wno-unused-value --offload-arch=gfx942 -I. tests/bench/timeline.c -o "$out/timeline" >&2
AMDSIM_MODE=timed AMDSIM_CUS=4 LD_LIBRARY_PATH=${FLEET_HIP_RUNTIME:?is made by tests/with_hip.sh} "$out/timeline"
