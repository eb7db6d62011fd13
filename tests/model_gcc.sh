#!/usr/bin/env bash
# gcc for the chiplet-memory model of the CPU: with the hooks of ThreadSanitizer, but not its library.
#
#   tests/model_gcc.sh ARGUMENTS... -o PROGRAM
set -eu
program=${*: -1}
gcc -O1 -fsanitize=thread -fno-builtin -DFLEET_MEMORY_MODEL "${@:1:$#-2}" -c -o "$program.o"
gcc "$program.o" -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset -pthread -lm -o "$program"
