# shellcheck shell=bash
# Where ROCm is and whether its GPU can be used: the one answer for examples/run.sh, tests/run.sh and tests/bench/on_amd.sh.
# Sourced; defines functions and does nothing by itself.
#
#   rocm_find   puts hipcc on PATH: that of $ROCM_PATH; or the one that is on PATH; or that of /opt/rocm, or of the newest
#               /opt/rocm-VERSION. Sets rocm, its folder, and rocm_llvm, the folder of its clang and llvm-objdump
#   rocm_gpu    whether an AMD GPU is here that this user may open
#
# Both set rocm_missing where they end with 1: what is missing, and what to do.
#
# Environment: ROCM_PATH   a folder of ROCm, instead of looking for one
#              ROCM_KFD    the driver's file, for tests (default: /dev/kfd)

rocm='' rocm_llvm='' rocm_missing=''

rocm_find() {
    local folder
    rocm='' rocm_llvm='' rocm_missing=''
    if [ -n "${ROCM_PATH:-}" ] && [ ! -x "$ROCM_PATH/bin/hipcc" ]; then
        rocm_missing="ROCM_PATH is $ROCM_PATH, where bin/hipcc is missing: unset it, or name a folder of ROCm"
        return 1
    elif [ -n "${ROCM_PATH:-}" ]; then
        case $PATH in "$ROCM_PATH/bin":*) ;; *) PATH=$ROCM_PATH/bin:$PATH ;; esac
    elif ! command -v hipcc >/dev/null; then
        # The newest first. Names of versions hold no blanks.
        # shellcheck disable=SC2012
        for folder in /opt/rocm $(ls -d /opt/rocm-*/ 2>/dev/null | sort -rV); do
            [ -x "$folder/bin/hipcc" ] || continue
            PATH=$PATH:${folder%/}/bin
            break
        done
    fi
    if ! command -v hipcc >/dev/null; then
        rocm_missing="hipcc is neither on PATH nor in /opt/rocm/bin: install ROCm 6.2 or later, or set ROCM_PATH"
        return 1
    fi
    rocm=$(hipconfig --rocmpath 2>/dev/null) || rocm=
    [ -n "$rocm" ] || rocm=$(dirname "$(dirname "$(command -v hipcc)")")
    for folder in "$rocm/lib/llvm/bin" "$rocm/llvm/bin" "$(hipconfig --hipclangpath 2>/dev/null)"; do
        [ ! -x "$folder/clang" ] || { rocm_llvm=$folder && break; }
    done
}

rocm_gpu() {
    local file=${ROCM_KFD:-/dev/kfd}
    rocm_missing=
    if [ ! -e "$file" ]; then
        rocm_missing="there is no AMD GPU here, or its driver is not loaded ($file is missing)"
    elif [ ! -r "$file" ] || [ ! -w "$file" ]; then
        rocm_missing="there is an AMD GPU, but this user may not open $file: add it to the groups render and video"
    fi
    [ -z "$rocm_missing" ]
}
