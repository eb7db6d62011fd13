#!/usr/bin/env bash
# Writes the three headers as one file, with stb_ds.h inside where it is found:
#
#   ./amalgamate.sh [OUTPUT]     default: fleet_all.h, in the current folder
#
# stb_ds.h is $STB_DS, else the one beside the headers or on the usual include paths; if there is none,
# the single file includes it as fleet.h does. The same inputs give the same bytes.
set -eu
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

# stb_ds.h as it is. On the include path it is a system header, whose macros warn of nothing where they
# are used; here the same is said in words, up to the end of the section that uses it.
print_stb() {
    cat <<'TEXT'
/* ---- stb_ds.h, unchanged ----------------------------------------------------------------------- */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wunused-value"
#endif
TEXT
    cat "$1"
    cat <<'TEXT'
/* ---- end of stb_ds.h --------------------------------------------------------------------------- */
TEXT
}

# A header without its includes of the others, and with the file $2 in the place of the #if ... #endif
# that looks for stb_ds.h. The warnings come back where the #if of that section ends.
print_header() {
    awk -v stb="$2" '
        /^#[ \t]*include[ \t]*"fleet(_device)?\.h"/ { next }
        /^#[ \t]*if/ { depth++ }
        stb != "" && !skip && /^#[ \t]*if.*__has_include.*stb_ds\.h/ {
            while ((getline line < stb) > 0) print line
            skip = depth
            section = depth - 1
        }
        !skip && section && depth == section && /^#[ \t]*endif/ {
            print "#if defined(__GNUC__)\n#pragma GCC diagnostic pop\n#endif"
            section = 0
        }
        !skip
        /^#[ \t]*endif/ {
            if (skip == depth) skip = 0
            depth--
        }' "$1"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stb=$(find_stb)
if [ -n "$stb" ]; then
    print_stb "$stb" >"$work/stb"
    with="and stb_ds.h "
fi
{
    echo "/* fleet.h, fleet_device.h, fleet_sched.h ${with:-}in one file, written by amalgamate.sh: edit those. */"
    for header in fleet.h fleet_device.h fleet_sched.h; do
        printf '\n'
        print_header "$here/$header" "${stb:+$work/stb}"
    done
} >"$work/all"
mv "$work/all" "$output"
