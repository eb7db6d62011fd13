#!/usr/bin/env bash
# Searches the models of this folder exhaustively, by spin, and prints a line "pass NAME" or "FAIL NAME: why" for each of
# their variants; lines that begin with "| " are a table of what was searched.
#
#   tests/model/run.sh [MODEL.pml...]        all of them without arguments
#
# The first comment of a model lists its variants, one a line:
#
#   holds NAME [-DNAME...]              no error in any reachable state: no assertion fails, no process is stuck
#   deep NAME [-DNAME...]               the same, in deep runs only (FLEET_DEEP=1)
#   twin NAME -DBROKEN...: ERRORS       a broken twin: spin finds one of these errors (a regular expression). Twins
#                                       go by turns (FLEET_TEST_TURN, tests/README.md).
#   reach NAME -DREACH...               spin reaches the assertion that the definition adds: the model is not vacuous
#
# A search that ends at a limit of memory or of depth is a failure. Environment: OUT (a folder for what is made),
# FLEET_DEEP, TESTS (some variants only), MODEL_MEGABYTES (of one search).
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=../setup.sh
. tests/setup.sh
# shellcheck source=../turn.sh
. tests/turn.sh
setup_packages spin:spin gcc:gcc

out=${OUT:-tests/build/model}
megabytes=${MODEL_MEGABYTES:-$([ -n "${FLEET_DEEP:-}" ] && echo 12000 || echo 1500)}
status=0

fail() { # NAME WHY
    echo "FAIL $1: $2"
    status=1
}

# The number in front of these words of pan's output.
count() { # WORDS
    sed -n "s/^ *\([0-9.e+]*\) $1.*/\1/p" "$dir/log" | head -n 1
}

# search DIR OPTIONS...: builds the search of $model and runs it; what it says is in DIR/log.
search() {
    local dir=$1 made=-O1 limits='-m100000 -w22'
    shift
    rm -rf "$dir"
    mkdir -p "$dir"
    case $kind in # to compile a search costs more than to find the error of a twin
    twin | reach) made=-O0 limits='-m100000 -w20' ;;
    deep) made='-O2 -DCOLLAPSE' limits='-m3000000 -w26' ;;
    esac
    # spin leaves its files where it runs; what it cannot read makes it take all memory there is.
    (
        ulimit -v 8000000
        cd "$dir" && spin "$@" -a "$OLDPWD/$model"
    ) >"$dir/spin.log" 2>&1 || return 1
    # shellcheck disable=SC2086
    gcc -w $made -DSAFETY -DMEMLIM="$megabytes" -o "$dir/pan" "$dir/pan.c" >>"$dir/spin.log" 2>&1 || return 1
    # shellcheck disable=SC2086
    (cd "$dir" && ./pan $limits >log 2>&1) || true
}

# trail DIR OPTIONS...: the end of the run that leads to the error.
trail() {
    local dir=$1
    shift
    (cd "$dir" && cp "$OLDPWD/$model" "$OLDPWD"/tests/model/*.inc . && spin "$@" -t -p "$(basename "$model")" 2>&1 |
        grep -vE '\[(DO|IF|break|else|\(1\))\]' | tail -n 150) || true
}

# Whether a name contains one of the words of $TESTS, where there are any.
wanted() {
    local test
    for test in ${TESTS:-}; do case $1 in *"$test"*) return 0 ;; esac done
    [ -z "${TESTS:-}" ]
}

variant() { # KIND NAME [OPTION...] [: ERRORS]
    local kind=$1 name errors='' dir found seconds begun result='' why='' states transitions
    name=$(basename "$model" .pml)/$2
    shift 2
    local line="$*" options
    case $line in *:*) errors=${line#*: } line=${line%%:*} ;; esac
    read -ra options <<<"$line"
    dir=$out/$name
    begun=$(date +%s%N)
    if ! search "$dir" ${options[@]+"${options[@]}"}; then
        fail "$name" "spin or gcc cannot read it"
        cat "$dir/spin.log"
        return
    fi
    seconds=$(awk "BEGIN { printf \"%.1f\", ($(date +%s%N) - $begun) / 1e9 }")
    found=$(sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p' "$dir/log" | head -n 1)
    states=$(count 'states, stored')
    transitions=$(count 'transitions')
    if grep -qE 'max search depth too small|memory exhausted|reached -DMEMLIM|out of memory' "$dir/log"; then
        why="the search was cut off by a limit"
    elif [ -z "$states" ]; then
        why="the search ended early"
    else
        case $kind in
        holds | deep)
            result=holds
            if [ -n "$found" ] || ! grep -q 'errors: 0$' "$dir/log" || grep -q 'Search not completed' "$dir/log"; then
                why="spin found: ${found:-an error}"
            fi
            ;;
        twin | reach)
            result="refuted: $found"
            [ "$kind" = twin ] || result=reached errors='assertion violated'
            [[ $found =~ ^($errors) ]] || why="spin found ${found:-no error}, not: $errors"
            ;;
        esac
    fi
    printf '| %-32s | %-60s | %10s states | %10s transitions | %5s s |\n' \
        "$name" "${why:+FAIL }$result" "$states" "$transitions" "$seconds"
    if [ -n "$why" ]; then
        fail "$name" "$why"
        [ ! -e "$dir/$(basename "$model").trail" ] || trail "$dir" ${options[@]+"${options[@]}"}
        grep -vE "^(Stats|nr of|collapse)" "$dir/log" | head -n 30
    else
        echo "pass $name"
    fi
    rm -f "$dir/pan" "$dir"/pan.?
}

[ $# -gt 0 ] || set -- tests/model/*.pml
for model; do
    variants=0 twins=0
    while read -r kind rest; do
        case $kind in
        twin) in_turn $((twins += 1)) || continue ;;
        deep) [ -n "${FLEET_DEEP:-}" ] || continue ;;
        holds | reach) ;;
        *) continue ;;
        esac
        variants=$((variants + 1))
        wanted "$(basename "$model" .pml)/${rest%% *}" || continue
        # shellcheck disable=SC2086
        variant "$kind" ${rest% \*/}
    done < <(sed '/\*\//q' "$model")
    [ $variants -gt 0 ] || fail "$(basename "$model" .pml)" "lists no variant"
done
exit $status
