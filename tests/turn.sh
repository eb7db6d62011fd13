# shellcheck shell=bash
# Sourced by scripts of which something goes by turns (README.md). Defines a function and does nothing by itself.

# in_turn N: whether this run has the N-th of some jobs: all of them by hand and in deep runs, with FLEET_TEST_TURN=K/N part K of N.
in_turn() {
    local turn=${FLEET_TEST_TURN:-}
    [ -z "$turn" ] || [ -n "${FLEET_DEEP:-}" ] || [ $(($1 % ${turn#*/})) = "${turn%/*}" ]
}
