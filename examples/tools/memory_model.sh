#!/usr/bin/env bash
# Compiles a program for the memory model of the CPU (memory_model.c): with the hooks of ThreadSanitizer, but the model in
# place of its library.
#
#   examples/tools/memory_model.sh ARGUMENTS... -o PROGRAM
#   examples/tools/memory_model.sh -c ARGUMENTS... -o OBJECT.o     a part of a program, linked when it is among ARGUMENTS
#
# ARGUMENTS are for the compiler, gcc or $CC, and one source or several (.c, .cc, .cpp, or - with -x), each of which it compiles by itself. clang needs one more: -mllvm -tsan-instrument-read-before-write=1. A
# memory_model.o among them is the model itself, compiled before.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
output=${*: -1} objects=() sources=() arguments=() model= value=
for word in "${@:1:$#-2}"; do
    case $word in
    *.c | *.cc | *.cpp) if [ -n "$value" ]; then arguments+=("$word"); else sources+=("$word"); fi ;;
    -) sources+=("$word") ;;
    */memory_model.o) model=$word ;;
    *.o) objects+=("$word") ;;
    *) arguments+=("$word") ;;
    esac
    value=
    case $word in -include | -iquote | -isystem | -x | -I | -D) value=$word ;; esac
done
[ ${#sources[@]} -gt 0 ] || [ ${#objects[@]} -gt 0 ] || {
    echo "memory_model.sh: no source among: $*" >&2
    exit 2
}
compile=("${CC:-gcc}" -O1 -g -fsanitize=thread -fno-builtin -DFLEET_MEMORY_MODEL "${arguments[@]}")
if [ "$1" = -c ]; then exec "${compile[@]}" "${sources[@]}" -o "$output"; fi
if [ -z "$model" ]; then
    model=$output.model.o
    "${CC:-gcc}" -O3 -g -c -I"$tools/../.." "$tools/memory_model.c" -o "$model"
fi
for i in "${!sources[@]}"; do
    "${compile[@]}" -c "${sources[i]}" -o "$output.$i.o"
    objects+=("$output.$i.o")
done
# Not position-independent, so that a return address is what addr2line looks up.
"${CC:-gcc}" -no-pie "${objects[@]}" "$model" -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset -pthread -lm -o "$output"
