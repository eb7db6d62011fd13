#!/usr/bin/env bash
# Writes the three headers as one file, fleet_all.h, with stb_ds.h inside where it is found, and prints the file's name:
#
#   ./amalgamate.sh [--with PART,...] [OUTPUT]     default: fleet_all.h, in the current folder
#
# PART: also examples/parts/fleet_PART.h, such as server or trace. stb_ds.h is $STB_DS, else the one beside the headers or
# on the usual include paths; if there is none, the single file includes it as fleet.h does. The same inputs give the same
# bytes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
headers=(fleet.h fleet_device.h fleet_sched.h)

die() {
    echo "amalgamate.sh: $1" >&2
    exit 2
}

# add_parts NAME,...: an unknown name is refused with the list of those that there are.
add_parts() {
    local name known=() names=()
    for name in "$here"/examples/parts/fleet_*.h; do
        name=${name##*/fleet_}
        known+=("${name%.h}")
    done
    IFS=, read -ra names <<<"$1"
    [ ${#names[@]} -gt 0 ] || die "--with needs a part: ${known[*]}"
    for name in "${names[@]}"; do
        case " ${known[*]} " in *" $name "*) ;; *) die "no part is called '$name'; there are: ${known[*]}" ;; esac
        case " ${headers[*]} " in *"/fleet_$name.h "*) ;; *) headers+=("examples/parts/fleet_$name.h") ;; esac
    done
}

output=
while [ $# -gt 0 ]; do
    case $1 in
    --with) add_parts "${2-}" && shift $(($# < 2 ? 1 : 2)) ;;
    -*) die "usage: ./amalgamate.sh [--with PART,...] [OUTPUT]     default: fleet_all.h, in the current folder" ;;
    *)
        [ -z "$output" ] || die "more than one output: $output, $1"
        output=$1
        shift
        ;;
    esac
done
output=${output:-fleet_all.h}

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
# for stb_ds.h: "#if __has_include("stb_ds.h")" and what follows, up to the "#endif".
print_header() {
    awk -v stb="$2" -v inside=" ${headers[*]##*/} " '
        /^#include "fleet[a-z_]*\.h"/ && index(inside, " " substr($2, 2, length($2) - 2) " ") { next }
        stb != "" && /^#if __has_include\("stb_ds\.h"\)/ {
            print "/* ---- stb_ds.h, unchanged " dashes " */"
            while ((getline line < stb) > 0) print line
            print "/* ---- end of stb_ds.h " dashes " */"
            skip = 1
        }
        !skip
        skip && /^#endif/ { skip = 0 }' dashes="$(printf '%065d' 0 | tr 0 -)" "$1"
}

work=$(mktemp)
trap 'rm -f "$work"' EXIT
stb=$(find_stb)
{
    title=$(printf '%s, ' "${headers[@]##*/}" ${stb:+stb_ds.h})
    echo "/* ${title%, } in one file, written by amalgamate.sh. */"
    for header in "${headers[@]}"; do
        printf '\n'
        print_header "$here/$header" "$stb"
    done
} >"$work"
cat "$work" >"$output" # not with the mode of a temporary file: all users may read it
echo "$output"
