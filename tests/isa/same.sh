#!/usr/bin/env bash
# Whether two versions have the same machine code, for moves and renames: compares cubins byte for byte (nvcc, sm_90a) and
# the assembly of gfx942 (hipcc), without names of files. Prints a line for each program, and ends with 0 if all are equal.
#
#   tests/isa/same.sh [--nvidia|--amd] OLD [NEW [FILE...]]
#
# OLD and NEW are commits or folders with the sources; NEW is this tree by default. FILES: default below. A name that only
# one version has can be renamed first: SAME_SED is a sed script for the sources of OLD.
set -euo pipefail
# shellcheck source=tests/setup.sh
. "$(dirname "$0")/../setup.sh"
export -n LIBRARIES
PATH=$PATH:/usr/local/cuda/bin
platforms="nvidia amd"
case ${1-} in --nvidia | --amd) platforms=${1#--} && shift ;; esac
[ $# -gt 0 ] || die "usage: tests/isa/same.sh [--nvidia|--amd] OLD [NEW [FILE...]]"
old=$1 new=${2:-$repo}
shift $(($# < 2 ? $# : 2))
files=("$@")
[ $# -gt 0 ] || files=(examples/0[1-7]_*.c examples/1?_*.c examples/qwen3/qwen3.c tests/gpu/server.c tests/gpu/order.c)
work=$(mktemp -d)
trap 'rm -rf "$work"; hip_leave' EXIT

sources() { # SIDE VERSION
    mkdir -p "$work/$1"
    if [ -d "$2" ]; then
        tar -C "$2" --exclude=./tests/build --exclude=./.git -cf - . | tar -C "$work/$1" -xf -
    else
        git -C "$repo" archive "$2" | tar -C "$work/$1" -xf -
    fi
}
sources old "$old"
sources new "$new"
[ -z "${SAME_SED:-}" ] || find "$work/old" -name '*.[ch]' -exec sed -i -E "$SAME_SED" {} +

nvidia() { # SIDE FILE: the names of internal functions have a hash of the source in them
    (cd "$work/$1" && nvcc -x cu -arch=sm_90a -std=c++17 -O3 -w -I. -Itests ${STB_DS:+-I"$(dirname "$STB_DS")"} -cubin -o out.cubin "$2") &&
        sed -E 's/_[0-9a-f]{8}_[0-9]+_[a-z0-9_]+_c_[0-9a-f]{8}//g' <"$work/$1/out.cubin" | md5sum
}
amd() {
    hip_run sh -c "cd same_$1 && hipcc -x hip -std=c++17 -O2 -w --offload-arch=gfx942 --offload-device-only -I. -Itests -S -o - $2" |
        sed -E '/^\s*\.(file|ident|addrsig)/d; s/\s*;.*//; s/__hip_cuid_[0-9a-f]+//g' | md5sum
}

for platform in $platforms; do
    if [ $platform = amd ]; then
        mkdir -p "$repo/tests/build"
        hip_setup
        hip_install "${qwen3_packages[@]}"
        for side in old new; do
            hip_run mkdir -p same_$side
            tar -C "$work/$side" -cf - . | hip_run tar -C same_$side --no-same-owner -xf -
        done
    fi
    for file in "${files[@]}"; do
        a=$($platform old "$file")
        b=$($platform new "$file")
        [ "$a" = "$b" ] && verdict=same || verdict=different differs=yes
        echo "$platform: $file: $verdict"
    done
done
[ -z "${differs:-}" ]
