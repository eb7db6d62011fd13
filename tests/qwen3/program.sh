#!/usr/bin/env bash
# The program of examples/qwen3 as a user calls it: what it prints, where, and the status it ends with.
#
#   OUT=FOLDER [FLAGS="FLAGS"] tests/qwen3/program.sh
#
# What it builds goes to $OUT; $FLAGS are for the compiler.
set -eu

mkdir -p "$OUT"
program=$OUT/qwen3
# shellcheck disable=SC2086
gcc -std=c11 -O2 -DFLEET_TRACE ${FLAGS:-} -I. examples/qwen3/qwen3.c -o "$program" -pthread -lm -ljansson
dense=tests/fixtures/qwen3-tiny moe=tests/fixtures/qwen3-moe-tiny

# ends NAME STATUS WORDS ARGUMENT...: it ends with that status, and what it prints has these words.
ends() {
    local name=$1 wanted=$2 words=$3 rc=0
    shift 3
    timeout 60 "$program" "$@" >"$OUT/stdout" 2>"$OUT/stderr" </dev/null || rc=$?
    if [ $rc != "$wanted" ]; then
        echo "FAIL $name: ended with $rc, expected $wanted: $(tail -n 1 "$OUT/stderr")"
    elif ! cat "$OUT/stdout" "$OUT/stderr" | grep -qF -- "$words"; then
        echo "FAIL $name: did not print \"$words\": $(tail -n 1 "$OUT/stderr")"
    else
        echo "pass $name"
    fi
}
is() { # NAME WHAT WANTED
    if [ "$2" = "$3" ]; then echo "pass $1"; else echo "FAIL $1: \"$2\", expected \"$3\""; fi
}

# ---- what it is for

ends help 0 "--prompt-ids IDS" --help
for schedule in static chiplet dynamic auto unfused; do
    ends $schedule 0 "launch to first token" $dense --prompt-ids 318 --steps 6 --schedule $schedule --chiplets 2
    is "$schedule/tokens" "$(cat "$OUT/stdout")" "tokens: 195 361 480 368 490 190"
done
# Of a few steps a machine that is busy may see none begin.
ends times 0 "TPOT" $dense --prompt-ids 318 --steps 48
ends batch 0 "load " $dense --prompt-ids "318;460,191,256,334,255" --batch 3 --steps 4
is batch/tokens "$(tr '\n' ' ' <"$OUT/stdout")" "tokens: 195 361 480 368 tokens: 138 31 101 345 tokens: 195 361 480 368 "
ends repeated 0 "first token" $dense --prompt-ids "3*7,8" --steps 3 --context 64
tokens=$(cat "$OUT/stdout")
ends written_out 0 "first token" $dense --prompt-ids 7,7,7,8 --steps 3
is repeated/tokens "$tokens" "$(cat "$OUT/stdout")"
ends check 0 "ok: 128 of 128 tokens" $moe --check $moe/expected.json
ends random_weights 0 "tokens: " $moe --random-weights --steps 3
ends trace_svg 0 "critical path" $dense --prompt-ids 1 --steps 3 --trace "$OUT/step.svg"
is trace_svg/file "$(head -c 4 "$OUT/step.svg")" "<svg"
ends trace_json 0 "critical path" $dense --prompt-ids 1 --steps 3 --trace "$OUT/step.json"
is trace_json/file "$(python3 -c "import json; print(type(json.load(open('$OUT/step.json'))['traceEvents']).__name__)")" list

# ---- what is wrong is said, and ends with 2

ends no_folder 2 "MODEL_DIR"
ends unknown_option 2 "--colour" $dense --colour
ends no_value 2 "--steps" $dense --prompt-ids 1 --steps
ends no_number 2 "--steps needs a number" $dense --prompt-ids 1 --steps -3
ends no_prompt 2 "--prompt-ids" $dense
ends odd_prompt 2 "--prompt-ids must be like" $dense --prompt-ids "1,,2"
ends unknown_token 2 "token 512 is not one of the vocabulary's 512" $dense --prompt-ids 512
ends unknown_schedule 2 "--schedule is static" $dense --prompt-ids 1 --schedule fast
ends large_batch 2 "--batch is at most 64" $dense --prompt-ids 1 --batch 65
ends small_context 2 "--context" $dense --prompt-ids 1,2,3 --steps 4 --context 5
ends many_chiplets 2 "--chiplets 33" $dense --prompt-ids 1 --chiplets 33
ends trace_nowhere 2 "cannot be written" $dense --prompt-ids 1 --steps 2 --trace "$OUT/no/such/folder.svg"
ends missing_folder 2 "nothing: No such file" "$OUT/nothing" --prompt-ids 1
ends missing_reference 2 "nothing.json" $dense --check "$OUT/nothing.json"

# hostile NAME WORDS FILE COMMAND...: the command changes the copy of a checkpoint's file before it is loaded.
hostile() {
    local name=$1 words=$2 file=$3
    shift 3
    rm -rf "$OUT/model"
    cp -r $dense "$OUT/model"
    "$@" "$OUT/model/$file"
    ends "$name" 2 "$words" "$OUT/model" --prompt-ids 1 --steps 2
}
bytes() { # AT HEX FILE: writes over it
    python3 - "$@" <<'PYTHON'
import sys
with open(sys.argv[3], "r+b") as f:
    data = f.read()
    f.seek(int(sys.argv[1]) % len(data))
    f.write(bytes.fromhex(sys.argv[2]))
PYTHON
}
hostile truncated "model.safetensors" model.safetensors truncate -s 100000
hostile empty "model.safetensors" model.safetensors truncate -s 0
hostile huge_header "model.safetensors" model.safetensors bytes 0 ffffffffffffff7f
hostile nan_weight "is NaN" model.safetensors bytes -2 c07f
hostile zero_heads "config.json: num_attention_heads" config.json sed -i 's/"num_attention_heads": 4/"num_attention_heads": 0/'
hostile missing_field "config.json: hidden_size" config.json sed -i '/hidden_size/d'
hostile missing_tensor "lm_head.weight" model.safetensors sed -i 's/lm_head.weight/lm_hood.weight/'
hostile wrong_dtype "I32" model.safetensors sed -i '0,/"BF16"/s//"I32" /'
hostile misshapen "embed_tokens.weight: shape [512, 128], expected [510, 128]" config.json sed -i 's/"vocab_size": 512/"vocab_size": 510/'
hostile negative_offset "data_offsets" model.safetensors sed -i 's/\[131072,/[-31072,/'
hostile no_json "config.json" config.json truncate -s 40
