#!/usr/bin/env bash
# What a program meets that takes the headers in: headers of two versions, no implementation or two of them, and a shared
# library or two that have one inside.
#
#   OUT=FOLDER tests/host/kit.sh
set -eu
rm -rf "$OUT" && mkdir -p "$OUT"
read -ra flags <<<"$FLAGS"
hint=define_FLEET_IMPLEMENTATION_in_exactly_one_file

# verdict NAME WHY: WHY is empty if it passed.
verdict() {
    if [ -z "$2" ]; then echo "pass $1"; else echo "FAIL $1: $2"; fi
}

# ---- headers of two versions ----

# mixed HEADER INCLUDED: HEADER includes INCLUDED, which is of the next version.
mixed() {
    local dir=$OUT/mixed why='' text
    rm -rf "$dir" && mkdir -p "$dir" && cp fleet*.h examples/parts/*.h "$dir"
    sed -i -E 's/^(#define (FLEET|FLEETI_DEVICE)_VERSION) .*/\1 9999/' "$dir/$2"
    text=$(gcc -std=c11 -fsyntax-only "-I$dir" "$dir/$1" 2>&1) && why="it compiles beside another $2"
    grep -q "#error \"$1 is of fleet .*: copy all .*from one version" <<<"$text" || why=${why:-"no #error names $1"}
    verdict "$1 refuses $2 of another version" "$why"
}
mixed fleet_device.h fleet.h
mixed fleet_sched.h fleet_device.h
for part in calibrate linear server trace; do mixed "fleet_$part.h" fleet.h; done

# ---- a tile with another struct ----

cat >"$OUT/structs.c" <<'END'
#include "fleet_sched.h"
typedef struct a_args { float *x; } a_args;
typedef struct b_args { float *x; } b_args;
typedef struct set { a_args a; b_args b; } set;
FLEET_TILE(first, a_args) { return args->x ? FLEET_OK : FLEET_ERROR_NULL; }
#define SET_TILES(TILE, P) TILE(P, first MEMBER)
FLEET_MEGAKERNEL(set, SET_TILES, 64)
END
structs() { # NAME COMMAND...: the right member compiles, another one and none do not, without warnings switched on
    local why='' text member
    "${@:2}" -fsyntax-only -I. "-DMEMBER=,a" "$OUT/structs.c" >/dev/null 2>&1 || why="the right struct does not compile"
    for member in ,b ''; do
        text=$("${@:2}" -fsyntax-only -I. "-DMEMBER=$member" "$OUT/structs.c" 2>&1) && why=${why:-"another struct compiles"}
        grep -q 'error.*\(args_named_first\|tile_named_first\|a_args\)' <<<"$text" || why=${why:-"the error names no tile"}
    done
    verdict "$1" "$why"
}
structs "a tile of another struct is an error in C" gcc -std=c11
structs "a tile of another struct is an error in C++" g++ -x c++ -std=c++17

# ---- what the linker says ----

cat >"$OUT/user.c" <<'END'
#include "fleet_sched.h"
fleet_status run(fleet_session *s, fleet_graph *g, fleet_kernel k);
fleet_status run(fleet_session *s, fleet_graph *g, fleet_kernel k) { return fleet_session_open(s, g, NULL, k); }
int main(void)
{
    fleet_graph_destroy(fleet_graph_create(NULL));
    return 0;
}
END
printf '#define FLEET_IMPLEMENTATION\n#include "fleet_sched.h"\n' >"$OUT/implementation.c"
mkdir "$OUT/newer" && cp fleet*.h "$OUT/newer" && sed -i 's/of_fleet_0_3/of_fleet_0_4/' "$OUT/newer/fleet.h"
for name in user implementation; do gcc -std=c11 "${flags[@]}" -I. -c "$OUT/$name.c" -o "$OUT/$name.o"; done
gcc -std=c11 "-I$OUT/newer" -c "$OUT/implementation.c" -o "$OUT/newer.o"

# linked NAME FAILS OBJECT...: FAILS is the message that is wanted, or empty.
linked() {
    local why='' text
    text=$(gcc "${@:3}" -o "$OUT/program" -pthread -lm 2>&1) || why="it does not link"
    if [ -n "$2" ]; then
        if [ -z "$why" ]; then why="it links"; else why=; fi
        grep -q "$2.*$hint" <<<"$text" || why=${why:-"the linker's message does not name FLEET_IMPLEMENTATION"}
    fi
    verdict "$1" "$why"
}
linked "one implementation links" "" "$OUT/user.o" "$OUT/implementation.o"
linked "no implementation is named" "undefined reference to .fleet_graph_create" "$OUT/user.o"
cp "$OUT/implementation.o" "$OUT/again.o"
linked "a second implementation is named" "multiple definition of .fleet_graph_create" "$OUT/user.o" "$OUT/implementation.o" "$OUT/again.o"
linked "an implementation of another version is named" "undefined reference to .fleet_graph_create" "$OUT/user.o" "$OUT/newer.o"

# ---- what a library exports ----

cat >"$OUT/library.c" <<'END'
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"
int NAME(void);
__attribute__((visibility("default"))) int NAME(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const int failed = fleet_graph_status(g) != FLEET_OK;
    fleet_graph_destroy(g);
    return failed;
}
END
printf 'int first(void);\nint second(void);\nint main(void) { return first() + second(); }\n' >"$OUT/main.c"

# exports NAME PATTERN FLAG...: none of the library's dynamic symbols, but `first`, has the pattern.
exports() {
    local found=
    gcc -std=c11 "${flags[@]}" -O1 -I. -DNAME=first "${@:3}" -shared -fPIC "$OUT/library.c" -o "$OUT/libfirst.so" -pthread
    nm -D --defined-only "$OUT/libfirst.so" >"$OUT/symbols"
    grep -q ' first$' "$OUT/symbols" || found="it does not export its own function"
    [ -n "$found" ] || found=$(grep -E "$2" "$OUT/symbols" | head -n 1) || true
    verdict "$1" "$found"
}
exports "a library exports nothing of stb_ds.h" ' stbds_'
exports "a library with hidden symbols exports no other" ' (fleet|stbds)' "-DFLEET_API=__attribute__((visibility(\"hidden\")))"
for language in c c++; do
    why=
    for name in first second; do
        [ $language = c ] && standard=c11 || standard=c++17
        gcc -x $language -std=$standard "${flags[@]}" -O1 -I. "-DNAME=$name" "-DFLEET_API=static __attribute__((unused))" -c "$OUT/library.c" -o "$OUT/$name.o"
    done
    gcc -x $language -c "$OUT/main.c" -o "$OUT/main.o"
    g++ "$OUT/main.o" "$OUT/first.o" "$OUT/second.o" -o "$OUT/both" -pthread && "$OUT/both" || why="it does not link or run"
    verdict "two static implementations in one $language program" "$why"
done
