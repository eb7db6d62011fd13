#!/usr/bin/env bash
# The decoder of examples/qwen3 beside llama.cpp on this CPU: the same dimensions, BF16, random weights, the same number of
# threads, in turns. Prints a table in Markdown, of medians: prefill of one sequence (llama-bench), decode from an empty
# cache (llama-bench), and decode of several sequences (llama_batch.c).
#
#   tests/bench/llama.sh [ROUNDS]         default: 5
#
# llama.cpp is Debian testing's, in the root that tests/setup.sh keeps (root or sudo); or where llama-bench is on PATH, that
# one, with libllama's headers. The decoder needs libjansson, libpcre2-8 and libunistring. Environment:
#   MODEL    "LAYERS HIDDEN FFN HEADS KV_HEADS" (default: those of Qwen3-0.6B)
#   THREADS  default: one for each processor
#   BATCH    sequences (default: 8), with 64 tokens of prompt each
#   PROGRAM  an executable of the decoder that is built already
set -eu
# The processes run ahead of others where that is allowed: in a session of their own, since Linux may share processors out
# among sessions first.
if [ -z "${FLEET_AHEAD:-}" ] && command -v setsid >/dev/null; then exec env FLEET_AHEAD=1 setsid -w "$0" "$@"; fi
{ echo -20 >/proc/self/autogroup; } 2>/dev/null || true
renice -n -20 $$ >/dev/null 2>&1 || true

# shellcheck source=tests/setup.sh
. "$(dirname "$0")/../setup.sh"
cd "$repo"
rounds=${1:-5} batch=${BATCH:-8} threads=${THREADS:-$(nproc)} prompt=512 steps=32 batch_prompt=64
model=${MODEL:-28 1024 3072 16 8}
out=tests/build/bench
program=${PROGRAM:-$out/qwen3}
mkdir -p "$out/llama"
# shellcheck source=tests/bench/model.sh
. "$repo/tests/bench/model.sh"
# shellcheck disable=SC2086
config $model >"$out/llama/config.json"
if [ -z "${PROGRAM:-}" ]; then
    setup_qwen3
    "${CC:-cc}" -std=c11 -O3 -march=native -ffp-contract=fast -I. ${stb_flags[@]+"${stb_flags[@]}"} \
        -c examples/qwen3/qwen3.c -o "$program.o"
    "${CC:-cc}" "$program.o" -o "$program" "${qwen3_libraries[@]}" -lpthread -lm
fi

if command -v llama-bench >/dev/null; then
    hip_mode=native hip_tree=$repo
else
    trap hip_leave EXIT
    hip_setup
    hip_install llama.cpp-tools libllama-dev python3 gcc
fi
gguf=$out/llama/model.gguf
hip_run mkdir -p "$out/llama"
# shellcheck disable=SC2086
hip_run python3 tests/bench/gguf.py "$gguf" $model
hip_run cc -O2 tests/bench/llama_batch.c -o "$out/llama/batch" -lllama -lggml -lggml-base

# median: of the numbers in the lines of standard input.
median() { sort -n | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
# decoder PATTERN PROMPTS STEPS: what the decoder prints in place of the pattern's parentheses.
decoder() {
    local log=$out/llama/decoder.log
    "$program" "$out/llama" --random-weights --ignore-eos --prompt-ids "$2" --steps "$3" >/dev/null 2>"$log" ||
        die "$(cat "$log")"
    sed -n "s/.*$1.*/\1/p" "$log"
}
prompts=
for ((i = 0; i < batch; i++)); do prompts="$prompts;$batch_prompt*$((7 + i))"; done

for file in prefill decode batch; do : >"$out/llama/$file.llama" && : >"$out/llama/$file.fleet"; done
for ((round = 1; round <= rounds; round++)); do
    hip_run llama-bench -m "$gguf" -t "$threads" -p $prompt -n $steps -r 1 -o csv 2>/dev/null >"$out/llama/bench.csv"
    # The columns n_prompt and avg_ns, by their names.
    awk -v RS='\n' -F'","' -v out="$out/llama" 'NR == 1 { gsub(/"/, ""); n = split($0, name, ","); for (i = 1; i <= n; i++) at[name[i]] = i; next }
        { gsub(/^"|"$/, ""); tokens = $at["n_prompt"] + $at["n_gen"]
          if ($at["n_prompt"] > 0) print $at["avg_ns"] / 1e6 >>(out "/prefill.llama")
          else print $at["avg_ns"] / 1e6 / tokens >>(out "/decode.llama") }' "$out/llama/bench.csv"
    decoder 'first token \([0-9.]*\) ms' "$prompt*7" 1 >>"$out/llama/prefill.fleet"
    decoder 'TPOT \([0-9.]*\) ms' 1 $((steps + 1)) >>"$out/llama/decode.fleet"
    hip_run "$out/llama/batch" "$gguf" "$threads" "$batch" $batch_prompt $steps 2>/dev/null >>"$out/llama/batch.llama"
    decoder 'TPOT \([0-9.]*\) ms' "${prompts#;}" $((steps + 1)) >>"$out/llama/batch.fleet"
    echo "round $round of $rounds: $(tail -q -n 1 "$out"/llama/{prefill,decode,batch}.{llama,fleet} | tr '\n' ' ')" >&2
done

version=$(hip_run sh -c 'dpkg-query -W -f "\${Version}, ggml " libllama0 && dpkg-query -W -f "\${Version}" libggml0' 2>/dev/null || true)
echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $threads threads, $(date -u +%F)," \
    "llama.cpp ${version:-of PATH}, model $model: \`tests/bench/llama.sh $rounds\`, medians of $rounds rounds"
echo
echo "| | fleet | llama.cpp | llama.cpp / fleet |"
echo "| --- | --- | --- | --- |"
row() { # WHAT FILE
    awk -v what="$1" -v fleet="$(median <"$out/llama/$2.fleet")" -v llama="$(median <"$out/llama/$2.llama")" \
        'BEGIN { printf "| %s | %.1f ms | %.1f ms | %.2f |\n", what, fleet, llama, llama / fleet }'
}
row "prefill, $prompt tokens" prefill
row "decode, a token" decode
row "decode, a step of $batch sequences" batch
