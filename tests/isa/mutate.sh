#!/usr/bin/env bash
# The mutants of the headers on the simulated MI300X (mutate.py): prints which litmus program caught which. Run
# by tests/run.sh where hipcc is; by hand:
#   tests/with_hip.sh bash tests/isa/mutate.sh
set -eu
exec python3 -B "$(dirname "$0")/mutate.py"
