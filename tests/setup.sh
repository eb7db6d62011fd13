# shellcheck shell=bash
# What the tests need, found or installed. Sourced by tests/run.sh and tests/with_hip.sh; defines
# functions and does nothing by itself.
#
#   setup_packages COMMAND:PACKAGE...   installs the packages whose command is missing
#   setup_stb                           finds stb_ds.h or installs it; sets stb_flags
#   setup_qwen3                         finds the libraries of examples/qwen3 or installs them; sets qwen3_libraries
#                                       and qwen3_packages
#   setup_serve                         the same for examples/serve; sets serve_libraries
#   setup_mpi                           the same for Open MPI, for programs whose ranks are processes
#   setup_fuzzer                        finds clang and its libFuzzer or installs them
#   hip_setup                           finds a hipcc for gfx942, or makes a Debian testing root with one
#   hip_device                          finds what HIP programs run on: sets hip_runtime
#   hip_simulator                       the same, but never an AMD GPU
#   hip_install PACKAGE...              installs packages where that hipcc is
#   hip_run COMMAND...                  runs a command where that hipcc is, at the top of the sources
#   hip_leave                           removes what hip_setup left for this process
#
# Environment: FLEET_HIP_ROOT  where the Debian testing root is kept
#                              (default: ${XDG_CACHE_HOME:-~/.cache}/fleet/hip-root)
#              STB_DS          the user's own stb_ds.h

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/tools/rocm.sh
. "$repo/examples/tools/rocm.sh"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # chroot and debootstrap, for users other than root

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

# ---- packages -----------------------------------------------------------------------------------

may_be_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# apt-get, without questions. A testing root that is not new has release files that have expired.
apt='env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Check-Valid-Until=false
     -o Dpkg::Options::=--force-unsafe-io --no-install-recommends'

# Runs a command quietly; its output is shown only when it fails.
quietly() {
    local log
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null && rm -f "$log" && return
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
}

packages_updated=
install_packages() {
    if ! may_be_root || ! command -v apt-get >/dev/null; then
        die "missing here (the names are Debian's): $*
Install that, or run this on a Debian-like system as root or with sudo."
    fi
    printf 'installing %s\n' "$*" >&2
    # Once in a process. An update that misses one of the user's other sources is no reason to stop: the install tells.
    # shellcheck disable=SC2086
    [ -n "$packages_updated" ] || as_root $apt update >/dev/null 2>&1 || true
    packages_updated=yes
    # shellcheck disable=SC2086
    quietly as_root $apt install "$@" || die "apt-get could not install: $*"
}

setup_packages() {
    local pair missing=()
    for pair; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

# The headers find <stb/stb_ds.h> by themselves; the user's own copy may lie anywhere.
stb_flags=()
setup_stb() {
    if [ -n "${STB_DS:-}" ]; then
        # shellcheck disable=SC2034
        stb_flags=("-I$(cd "$(dirname "$STB_DS")" && pwd)")
    elif ! printf '#include <stb/stb_ds.h>\n' | gcc -E -x c - >/dev/null 2>&1; then
        install_packages libstb-dev
    fi
}

qwen3_libraries=(-ljansson -lpcre2-8 -lunistring)
qwen3_packages=(libjansson-dev libpcre2-dev libunistring-dev)
setup_qwen3() {
    printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <jansson.h>\n#include <pcre2.h>\n#include <uninorm.h>\n' |
        gcc -E -x c - >/dev/null 2>&1 || install_packages "${qwen3_packages[@]}"
}

serve_libraries=("${qwen3_libraries[@]}" -lmicrohttpd)
setup_serve() {
    setup_qwen3
    printf '#include <microhttpd.h>\n' | gcc -E -x c - >/dev/null 2>&1 || install_packages libmicrohttpd-dev
}

setup_mpi() {
    setup_packages mpicc:libopenmpi-dev mpirun:openmpi-bin
}

setup_fuzzer() {
    setup_packages clang:clang
    printf 'int LLVMFuzzerTestOneInput(void) { return 0; }\n' |
        clang -x c -fsanitize=fuzzer,address,undefined - -o /dev/null 2>/dev/null ||
        install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# ---- hipcc: the user's, or one in a root of its own ---------------------------------------------

hip_mode=    # native or root, once hip_setup has run
hip_root=    # the root's folder; empty when native
hip_tree=    # the sources, as a command in the root sees them
hip_runtime= # the folder of the libamdhip64.so.6 that runs HIP programs, likewise; empty: an AMD GPU
hip_llvm=    # the folder of hipcc's clang and llvm-objdump, likewise
hip_enter=() # the command that enters the root

hip_setup() {
    [ -z "$hip_mode" ] || return 0
    if hip_is_native; then
        hip_mode=native hip_tree=$repo hip_runtime=${FLEET_HIP_RUNTIME:-} hip_llvm=$rocm_llvm
        return 0
    fi
    may_be_root || die "$rocm_missing.
Or run this as root or with sudo: it then makes a Debian testing root with a hipcc."
    hip_root=${FLEET_HIP_ROOT:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fleet/hip-root}
    [ "${hip_root#/}" != "$hip_root" ] || hip_root=$PWD/$hip_root
    hip_make_root
    hip_mode=root
    hip_llvm=$(cd "$hip_root" && echo usr/lib/llvm-*/bin/clang)
    hip_llvm=/${hip_llvm%/clang}
    # A private mount namespace takes /proc away with the command that needed it. Where a container
    # forbids it, the root works without /proc.
    hip_enter=(chroot)
    # shellcheck disable=SC2016
    if as_root unshare -m true 2>/dev/null; then
        hip_enter=(unshare -m sh -c 'mount -t proc proc "$0/proc" 2>/dev/null; exec chroot "$0" "$@"')
    fi
    hip_copy_sources
}

# It is asked to compile a file: given "-", hipcc forgets the architecture.
hip_is_native() {
    local dir rc=0
    rocm_find || return 1
    dir=$(mktemp -d)
    printf '#include <hip/hip_runtime.h>\n__global__ void k() {}\n' >"$dir/k.c"
    hipcc --offload-arch=gfx942 -x hip -c "$dir/k.c" -o "$dir/k.o" >/dev/null 2>&1 || rc=$?
    rm -rf "$dir"
    [ $rc = 0 ] || rocm_missing="$(command -v hipcc) cannot compile for gfx942: install ROCm 6.2 or later, or set ROCM_PATH"
    return $rc
}

# The file that a complete root has; another number when the recipe changes.
hip_complete=etc/fleet-root-1

# Made under another name and renamed when complete, so that a root that exists is a whole one.
hip_make_root() {
    local start=$SECONDS
    [ -d "$(dirname "$hip_root")" ] || mkdir -p "$(dirname "$hip_root")"
    exec 8>>"$hip_root.lock"
    flock 8
    if [ ! -e "$hip_root/$hip_complete" ]; then
        printf 'making a Debian testing root with hipcc in %s (about 2 GB)\n' "$hip_root" >&2
        setup_packages debootstrap:debootstrap
        hip_discard "$hip_root"
        hip_discard "$hip_root.new"
        quietly hip_fill_root "$hip_root.new" ||
            die "the Debian testing root could not be made (FLEET_HIP_ROOT chooses another place)"
        as_root mv "$hip_root.new" "$hip_root"
        printf 'made in %d s\n' $((SECONDS - start)) >&2
    fi
    exec 8>&-
}

# Removes a root. A killed debootstrap leaves its mounts behind: they go first, and no other file
# system is ever touched.
hip_discard() {
    as_root umount -q "$1/proc" "$1/sys" 2>/dev/null || true
    as_root rm -rf --one-file-system "$1"
}

hip_fill_root() {
    # shellcheck disable=SC2086
    as_root debootstrap --variant=minbase testing "$1" &&
        as_root chroot "$1" $apt update &&
        as_root chroot "$1" $apt install hipcc libamdhip64-dev g++ make libstb-dev &&
        as_root chroot "$1" $apt clean &&
        printf '%s\n' "$hip_without_proc" | as_root tee "$1/usr/local/bin/hipcc" &&
        as_root chmod 755 "$1/usr/local/bin/hipcc" &&
        as_root touch "$1/$hip_complete"
}

# hipcc asks /proc for its own path. Without /proc, clang is called as hipcc would have done.
# shellcheck disable=SC2016
hip_without_proc='#!/bin/sh
[ ! -e /proc/self/exe ] || exec /usr/bin/hipcc "$@"
exec clang++ --driver-mode=g++ --hip-link -Wno-unused-command-line-argument "$@"'

# Each process has its own copy of the sources in the root, so that runs do not meet; the jobs of a run share that of
# the process $FLEET_HIP_OWNER. The copies of processes that were killed go too.
hip_copy_sources() {
    local old
    hip_tree=/fleet/${FLEET_HIP_OWNER:-$$}
    for old in "$hip_root"/fleet/*; do
        if [ -e "$old" ] && [ ! -e "/proc/${old##*/}" ]; then as_root rm -rf "$old"; fi
    done
    as_root rm -rf "$hip_root$hip_tree"
    as_root mkdir -p "$hip_root$hip_tree"
    tar -C "$repo" --exclude=./.git --exclude=./tests/build --exclude=./examples/build -cf - . |
        as_root tar -C "$hip_root$hip_tree" --no-same-owner -xf -
    case ${FLEET_HIP_RUNTIME:-} in
    '') ;;
    "$hip_root"/*) hip_runtime=${FLEET_HIP_RUNTIME#"$hip_root"} ;;
    *)
        hip_runtime=$hip_tree/tests/build/hip_runtime
        as_root mkdir -p "$hip_root$hip_runtime"
        as_root cp -L "$FLEET_HIP_RUNTIME"/*.so* "$hip_root$hip_runtime"
        ;;
    esac
}

# HIP programs run on what FLEET_HIP_RUNTIME names, or on the AMD GPU of this machine, or on the
# simulated MI300X. Only a native hipcc comes with a runtime that can use the GPU.
hip_device() {
    if [ "$hip_mode" = native ] && [ -z "${FLEET_HIP_RUNTIME:-}" ] && rocm_gpu; then
        hip_runtime=
    else
        hip_simulator
    fi
}

# Builds tests/amdsim where hipcc is, with the LLVM of its version. The objects are kept in tests/build/amdsim, and
# make compiles what is older than its sources. The root's copy of the sources gets them and gives them back.
hip_simulator() {
    local version built
    [ -z "${FLEET_HIP_RUNTIME:-}" ] || return 0
    version=$(hip_run sh -c 'clang --version' | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
    hip_install make g++ libzstd-dev "llvm-$version-dev"
    built=tests/build/amdsim/llvm-$version
    hip_runtime=$hip_tree/$built
    mkdir -p "$repo/$built"
    quietly hip_build_simulator "$version" "$built" || die "the simulated MI300X (tests/amdsim) does not build"
} 7>>"$repo/tests/build/amdsim.lock"

hip_build_simulator() { # VERSION FOLDER
    flock 7
    if [ "$hip_mode" = root ]; then
        as_root mkdir -p "$hip_root$hip_runtime"
        tar -C "$repo/$2" -cf - . | as_root tar -C "$hip_root$hip_runtime" --no-same-owner -xf -
    fi
    hip_run make -s -j"$(nproc)" -C tests/amdsim OUT="$hip_runtime" LLVM_CONFIG="llvm-config-$1" || return
    [ "$hip_mode" = native ] || as_root tar -C "$hip_root$hip_runtime" -cf - . | tar -C "$repo/$2" --no-same-owner -xf -
}

hip_leave() {
    [ "$hip_mode" != root ] || as_root rm -rf "${hip_root:?}$hip_tree"
}

hip_install() {
    if hip_has "$@"; then
        return 0
    elif [ "$hip_mode" = native ]; then
        install_packages "$@"
    else
        quietly hip_fill_in "$@" || die "could not install in $hip_root: $*"
    fi
}

# Whether packages are there whole: a killed install leaves them half configured.
hip_has() {
    # shellcheck disable=SC2016
    ! hip_run dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>&1 | grep -qvx installed
}

hip_fill_in() {
    # shellcheck disable=SC2086
    flock 8 && hip_run dpkg --configure -a &&
        hip_run $apt update && hip_run $apt install "$@"
} 8>>"$hip_root.lock"

# The environment is passed by name: sudo would drop it, and the root has paths of its own.
hip_run() {
    local name vars=()
    for name in $(compgen -e | grep -E '^(AMDSIM|FLEET|HIP|HSA)_'); do
        vars+=("$name=${!name}")
    done
    vars+=("FLEET_HIP_RUNTIME=$hip_runtime")
    if [ "$hip_mode" = native ]; then
        (cd "$repo" && env "${vars[@]}" PATH="$PATH:$hip_llvm" "$@")
    else
        as_root "${hip_enter[@]}" "$hip_root" env -i "${vars[@]}" HOME=/root LANG=C.UTF-8 \
            PATH="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin:$hip_llvm" env -C "$hip_tree" "$@"
    fi
}
