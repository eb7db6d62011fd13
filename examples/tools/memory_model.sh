#!/usr/bin/env bash
# Compiles a program for the memory model of the CPU (memory_model.c): with the hooks of ThreadSanitizer, but the model in
# place of its library.
#
#   examples/tools/memory_model.sh ARGUMENTS... -o PROGRAM
#
# ARGUMENTS are for the compiler, gcc or $CC. clang needs one more: -mllvm -tsan-instrument-read-before-write=1.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
program=${*: -1}
"${CC:-gcc}" -O2 -g -c -I"$tools/../.." "$tools/memory_model.c" -o "$program.model.o"
"${CC:-gcc}" -O1 -g -fsanitize=thread -fno-builtin -DFLEET_MEMORY_MODEL "${@:1:$#-2}" -c -o "$program.o"
# Not position-independent, so that a return address is what addr2line looks up.
"${CC:-gcc}" -no-pie "$program.o" "$program.model.o" -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset -pthread -lm -o "$program"
