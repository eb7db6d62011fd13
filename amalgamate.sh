#!/usr/bin/env bash
# Writes the three headers as one file, with stb_ds.h inside where it is found:
#
#   ./amalgamate.sh [OUTPUT]     default: fleet_all.h, in the current folder
#
# stb_ds.h is $STB_DS, else the one beside the headers or on the usual include paths; if there is none,
# the single file includes it as fleet.h does. The same inputs give the same bytes.
set -eu
case ${1-} in
-*)
    echo "usage: ./amalgamate.sh [OUTPUT]     default: fleet_all.h, in the current folder" >&2
    exit 2
    ;;
esac
output=${1:-fleet_all.h}
here=$(cd "$(dirname "$0")" && pwd)

find_stb() {
    local file
    for file in ${STB_DS:+"$STB_DS"} "$here/stb_ds.h" /usr/local/include/stb_ds.h \
        /usr/local/include/stb/stb_ds.h /usr/include/stb_ds.h /usr/include/stb/stb_ds.h; do
        if [ -e "$file" ]; then
            echo "$file"
            return
        fi
    done
    [ -z "${STB_DS:-}" ] || {
        echo "STB_DS: no such file: $STB_DS" >&2
        exit 1
    }
}

# A header without its includes of the others. The file $2 takes the place of the branches that look
# for stb_ds.h: "#elif __has_include("stb_ds.h")" and what follows, up to the "#endif".
print_header() {
    awk -v stb="$2" '
        /^#include "fleet(_device)?\.h"/ { next }
        stb != "" && /^#elif __has_include\("stb_ds\.h"\)/ {
            print "#else\n/* ---- stb_ds.h, unchanged " dashes " */"
            while ((getline line < stb) > 0) print line
            print "/* ---- end of stb_ds.h " dashes " */"
            skip = 1
        }
        skip && /^#endif/ { skip = 0 }
        !skip' dashes="$(printf '%065d' 0 | tr 0 -)" "$1"
}

work=$(mktemp)
trap 'rm -f "$work"' EXIT
stb=$(find_stb)
{
    echo "/* fleet.h, fleet_device.h, fleet_sched.h${stb:+ and stb_ds.h} in one file, written by amalgamate.sh. */"
    for header in fleet.h fleet_device.h fleet_sched.h; do
        printf '\n'
        print_header "$here/$header" "$stb"
    done
} >"$work"
cp "$work" "$output"
