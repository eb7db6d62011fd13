#!/usr/bin/env bash
# The decoder of examples/qwen3 on one NVIDIA GPU: whether it passes its checks, and what a token takes with the
# dimensions of Qwen3-8B and random weights, 1,000 tokens of prompt and 24 more. Prints a table in Markdown: TPOT, what it
# reads in a second, and the share of what a plain read reaches on the same GPU, in the same run.
# Ends with 0 if all of them succeed.
#
#   tests/bench/qwen3.sh [BATCH...]       default: 1 2 4 8 16 32 64
#
# Needs nvcc and libjansson. Environment:
#   JANSSON       a folder with jansson.h and libjansson.a, where the system has none
#   FLEET_ARCH    the GPU to compile for, such as sm_90 (default: the one here)
#   PROGRAM       an executable that is built already
#   SCHEDULES     default: static unfused
#   LIMIT         seconds that a run may take (default: 300)
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
out=tests/build/bench
mkdir -p "$out/qwen3-8b"
[ $# -gt 0 ] || set -- 1 2 4 8 16 32 64

# What nvcc is told about libjansson.
jansson() {
    if [ -n "${JANSSON:-}" ]; then
        echo "-I$JANSSON $JANSSON/libjansson.a"
    elif command -v pkg-config >/dev/null && pkg-config --exists jansson; then
        pkg-config --cflags --libs jansson
    else
        echo -ljansson
    fi
}

program=${PROGRAM:-$out/qwen3}
build=(nvcc -x cu -arch="${FLEET_ARCH:-native}" -std=c++17 -O3 -w -I. ${STB_DS:+-I"$(dirname "$STB_DS")"}
    examples/qwen3/qwen3.c)
if [ -z "${PROGRAM:-}" ]; then
    # A library by its name must not be taken for CUDA source.
    # shellcheck disable=SC2046
    "${build[@]}" -c -o "$out/qwen3.o" $(jansson | grep -o -- '-I[^ ]*' || true)
    # shellcheck disable=SC2046
    nvcc -arch="${FLEET_ARCH:-native}" "$out/qwen3.o" -o "$program" $(jansson) -lpthread
fi

failed=0
for model in qwen3-tiny qwen3-moe-tiny; do
    timeout "${LIMIT:-300}" "$program" "tests/fixtures/$model" --check "tests/fixtures/$model/expected.json" || failed=1
done

cat >"$out/qwen3-8b/config.json" <<'CONFIG'
{
  "architectures": ["Qwen3ForCausalLM"],
  "model_type": "qwen3",
  "hidden_size": 4096,
  "num_hidden_layers": 36,
  "intermediate_size": 12288,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "head_dim": 128,
  "vocab_size": 151936,
  "max_position_embeddings": 40960,
  "rope_theta": 1000000.0,
  "rms_norm_eps": 1e-06,
  "hidden_act": "silu",
  "attention_bias": false,
  "tie_word_embeddings": false
}
CONFIG

run=(--random-weights --prompt-ids "1000*7" --steps 24)
echo
echo "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), $(date -u +%F)," \
    "\`qwen3 $out/qwen3-8b ${run[*]} --batch BATCH --schedule SCHEDULE\` (\`tests/bench/qwen3.sh\`)"
echo
echo "| batch | schedule | TPOT | read | of a plain read |"
echo "| --- | --- | --- | --- | --- |"
for batch; do
    for schedule in ${SCHEDULES:-static unfused}; do
        log=$out/qwen3-$batch-$schedule.log
        line=
        if timeout "${LIMIT:-300}" "$program" "$out/qwen3-8b" "${run[@]}" --batch "$batch" --schedule "$schedule" \
            >/dev/null 2>"$log"; then
            line=$(sed -n "s,^TPOT \([0-9.]*\) ms .*: \([0-9.]*\) GB/s\, \([0-9]*\)% of the \([0-9.]*\) GB/s.*,\1 ms | \2 GB/s | \3% of \4 GB/s,p" "$log")
        fi
        echo "| $batch | $schedule | ${line:-failed, $log | |} |"
        [ -n "$line" ] || failed=1
    done
done
exit $failed
