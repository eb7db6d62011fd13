#!/usr/bin/env bash
# The decoder of examples/qwen3 over 2, 3 and 4 ranks, each a process under Open MPI: tokens and logits as one rank has
# them (--check), the arguments that several ranks refuse, and ranks that are late, killed, or asked for something else
# than the others. The small checkpoints have two KV heads and 384 columns of an MLP, so that some of four ranks have no
# heads, and shares of three are padded.
#
#   OUT=FOLDER [FLAGS="FLAGS"] [LIBRARIES="-lNAME..."] tests/qwen3/ranks.sh
set -eu
# shellcheck source=tests/turn.sh
. tests/turn.sh

mkdir -p "$OUT/mpi"
mpi=$(cd "$OUT/mpi" && pwd)
program=$OUT/qwen3_ranks
# shellcheck disable=SC2086
mpicc -std=c11 -O1 -DFLEET_MPI -DFLEET_TRACE ${FLAGS:-} -I. examples/qwen3/qwen3.c -o "$program" -pthread -lm ${LIBRARIES:--ljansson -lpcre2-8 -lunistring}
dense=tests/fixtures/qwen3-tiny moe=tests/fixtures/qwen3-moe-tiny
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$mpi OMPI_MCA_btl_vader_backing_directory=$mpi

# ends NAME STATUS WORDS PROCESSES ARGUMENT...: all processes end so, and what they print has these words, on TIMES lines.
starts=("$program") # with the arguments
ends() {
    local name=$1 wanted=$2 words=$3 n=$4 rc=0
    shift 4
    mpirun --oversubscribe -n "$n" "${starts[@]}" "$@" >"$OUT/stdout" 2>"$OUT/stderr" </dev/null || rc=$?
    if [ $rc != "$wanted" ]; then
        echo "FAIL $name: ended with $rc, expected $wanted: $(grep qwen3: "$OUT/stderr" | head -n 1)"
    elif ! cat "$OUT/stdout" "$OUT/stderr" | grep -qF -- "$words"; then
        echo "FAIL $name: did not print \"$words\": $(head -n 1 "$OUT/stderr")"
    elif [ -n "${TIMES:-}" ] && [ "$(grep -cF -- "$words" "$OUT/stderr")" != "$TIMES" ]; then
        echo "FAIL $name: \"$words\" is not on $TIMES lines: $(grep -F -- "$words" "$OUT/stderr" | head -n 1)"
    else
        echo "pass $name"
    fi
}
checks() { # MODEL PROCESSES SCHEDULE
    ends "$(basename "$1")/$2/$3" 0 "ok: 128 of 128 tokens as expected" "$2" "$1" --check "$1/expected.json" --ranks "$2" --schedule "$3" --chiplets 1
}

if [ -n "${FLEET_DEEP:-}" ]; then
    for model in $dense $moe; do
        for n in 2 3 4; do
            for schedule in static chiplet auto unfused; do checks "$model" $n $schedule; done
        done
    done
else
    # Where workers of four ranks share few processors, all but CHIPLET take up to a minute. By turns (tests/README.md).
    n=0
    for one in "$dense 2 static" "$dense 3 chiplet" "$dense 4 chiplet" "$moe 4 chiplet" "$moe 2 auto" "$moe 3 chiplet" "$dense 2 unfused"; do
        # shellcheck disable=SC2086
        ! in_turn $n || checks $one
        n=$((n + 1))
    done
fi
ends drawn 0 "tokens: " 2 $dense --prompt-ids 318 --steps 4 --ranks 2 --temperature 0.7 --seed 5
if [ "$(wc -l <"$OUT/stdout")" = 1 ]; then echo "pass one_prints"; else echo "FAIL one_prints: $(cat "$OUT/stdout")"; fi
ends rounds 0 "first token" 2 $moe --prompt-ids "318;460,191,256,334,255" --batch 100 --steps 4 --ranks 2
together=$(sort "$OUT/stdout" | uniq -c)
ends rounds_of_one 0 "first token" 1 $moe --prompt-ids "318;460,191,256,334,255" --batch 100 --steps 4
if [ "$together" = "$(sort "$OUT/stdout" | uniq -c)" ] && [ "$(wc -l <"$OUT/stdout")" = 100 ]; then echo "pass rounds/tokens"; else echo "FAIL rounds/tokens: $together"; fi
ends traced 0 "join_heads" 2 $dense --prompt-ids 318 --steps 4 --ranks 2 --trace "$OUT/ranks.svg"
if grep -q "</svg>" "$OUT/ranks.svg" && grep -q "</svg>" "$OUT/ranks.1.svg"; then echo "pass each_rank_is_drawn"; else echo "FAIL each_rank_is_drawn"; fi
ends processes 2 "--ranks 3, but 2 processes were started" 2 $dense --prompt-ids 318 --ranks 3
ends no_seed 2 "a --temperature needs a --seed" 2 $dense --prompt-ids 318 --ranks 2 --temperature 0.7
ends dynamic 2 "ready queues do not reach over ranks" 2 $dense --prompt-ids 318 --ranks 2 --schedule dynamic

# disturb kill|SECONDS COMMAND...: what mpirun starts for a rank, where rank 1 is killed, or stopped for so long, when its
# launch has begun. Then it has a thread for each workgroup, of which --chiplets 8 makes eight. mpirun does not see the
# death of its child's child, and ends no other rank by itself.
cat >"$OUT/disturb" <<'END'
#!/bin/sh
what=$1
shift
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
"$@" &
until set -- /proc/$!/task/* && [ $# -gt 8 ]; do
    kill -0 $! || exit 9
    sleep 0.02
done
if [ "$what" = kill ]; then
    kill -KILL $!
    exec sleep 90
fi
kill -STOP $!
sleep "$what"
kill -CONT $!
wait $!
END
chmod +x "$OUT/disturb"
some=("$dense" --prompt-ids "318,5" --steps 64 --ignore-eos --chiplets 8)
ends alone 0 "tokens: " 1 "${some[@]}"
alone=$(cat "$OUT/stdout")
pause=3
[ -z "${FLEET_DEEP:-}" ] || pause=30
starts=("$OUT/disturb" "$pause" "$program")
ends late 0 "$alone" 2 "${some[@]}" --ranks 2
starts=("$OUT/disturb" kill "$program")
TIMES=2 ends killed 1 "this is rank " 3 "${some[@]}" --ranks 3 --rank-limit 8
if grep -qF "rank 0 has" "$OUT/stderr" || grep -qF "rank 2 has" "$OUT/stderr" || ! grep -qF "rank 1 has" "$OUT/stderr"; then
    echo "FAIL killed_is_named: $(grep -F "first: " "$OUT/stderr" | head -n 1)"
else
    echo "pass killed_is_named"
fi
starts=("$program")
# Of three ranks, the last one has another model, or prompt: the other two name it.
TIMES=2 ends other_model 1 "rank 2 has another plan" 2 "${some[@]}" --ranks 3 : -n 1 "$program" $moe "${some[@]:1}" --ranks 3
TIMES=2 ends other_batch 1 "rank 2 has other prompts or options" 2 "${some[@]}" --ranks 3 : -n 1 "$program" "${some[@]}" --batch 2 --ranks 3
ends rank_limit 2 "--rank-limit has a meaning with --ranks only" 1 "${some[@]}" --rank-limit 8
if [ -z "$(find "$mpi" -type f)" ]; then echo "pass nothing_is_left"; else echo "FAIL nothing_is_left: $(find "$mpi" -type f)"; fi
