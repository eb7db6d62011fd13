#!/usr/bin/env bash
# The checks of the machine code (check.py), and that each mutant of the headers turns one red. Run by
# tests/run.sh where hipcc is; by hand: tests/with_hip.sh bash tests/isa/check.sh
set -eu
exec python3 -B "$(dirname "$0")/check.py" "$@"
