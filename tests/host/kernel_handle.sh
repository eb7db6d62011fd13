#!/usr/bin/env bash
# Launches take the handle that FLEET_KERNEL_OF makes; the name of a kernel alone does not compile, by any compiler that
# is here.
#
#   OUT=FOLDER tests/host/kernel_handle.sh
set -eu
mkdir -p "$OUT"
cat >"$OUT/handle.c" <<'END'
#include "fleet_sched.h"
typedef struct none { float *x; } none;
FLEET_TILE(nothing, none) { return FLEET_OK; }
#define NONE_TILES(TILE, P) TILE(P, nothing)
FLEET_MEGAKERNEL(none, NONE_TILES, 64)
fleet_status launch(fleet_state *state, const fleet_launch_desc *desc);
fleet_status launch(fleet_state *state, const fleet_launch_desc *desc)
{
    return fleet_launch(state, desc, KERNEL, NULL);
}
END
# check NAME COMMAND...
check() {
    local name=$1
    shift
    if ! "$@" "-DKERNEL=FLEET_KERNEL_OF(none_kernel)" >"$OUT/$name.log" 2>&1; then
        echo "FAIL $name: $(head -n 1 "$OUT/$name.log")"
    elif "$@" -DKERNEL=none_kernel >"$OUT/$name.log" 2>&1; then
        echo "FAIL $name: a kernel without FLEET_KERNEL_OF compiles"
    else
        echo "pass $name"
    fi
}
flags=(-I. -Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only "$OUT/handle.c")
check c gcc -std=c11 "${flags[@]}"
check c++ g++ -x c++ -std=c++17 "${flags[@]}"
if command -v nvcc >/dev/null; then
    check cuda nvcc -x cu -std=c++17 -arch=sm_90 -I. -Werror all-warnings -ptx "$OUT/handle.c" -o "$OUT/handle.ptx"
fi
if command -v hipcc >/dev/null; then
    check hip hipcc -x hip -std=c++17 --cuda-host-only -I. -Wall -Werror -c "$OUT/handle.c" -o "$OUT/handle.o"
fi
