#!/usr/bin/env bash
# The program of examples/qwen3 as a user calls it: what it prints, where, and the status it ends with.
#
#   OUT=FOLDER [FLAGS="FLAGS"] [LIBRARIES="-lNAME..."] tests/qwen3/program.sh
#
# What it builds goes to $OUT; $FLAGS are for the compiler, and $LIBRARIES instead of those that Debian has. AddressSanitizer looks at each run, and for leaks at its end.
set -eu
# shellcheck source=tests/turn.sh
. tests/turn.sh

mkdir -p "$OUT"
program=$OUT/qwen3
# shellcheck disable=SC2086
gcc -std=c11 -Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -DFLEET_TRACE ${FLAGS:-} -I. examples/qwen3/qwen3.c -o "$program" -pthread -lm ${LIBRARIES:--ljansson -lpcre2-8 -lunistring}
dense=tests/fixtures/qwen3-tiny moe=tests/fixtures/qwen3-moe-tiny

# ends NAME STATUS WORDS ARGUMENT...: it ends with that status, and what it prints has these words.
ends() {
    local name=$1 wanted=$2 words=$3 rc=0
    shift 3
    "$program" "$@" >"$OUT/stdout" 2>"$OUT/stderr" </dev/null || rc=$?
    if [ $rc != "$wanted" ]; then
        echo "FAIL $name: ended with $rc, expected $wanted: $(tail -n 1 "$OUT/stderr")"
    elif ! cat "$OUT/stdout" "$OUT/stderr" | grep -qF -- "$words"; then
        echo "FAIL $name: did not print \"$words\": $(tail -n 1 "$OUT/stderr")"
    else
        echo "pass $name"
    fi
}
# refuses NAME WORDS ARGUMENT...: the same with 2, in its turn (tests/README.md).
refusals=0
refuses() {
    in_turn $((refusals += 1)) || return 0
    ends "$1" 2 "${@:2}"
}
is() { # NAME WHAT WANTED
    if [ "$2" = "$3" ]; then echo "pass $1"; else echo "FAIL $1: \"$2\", expected \"$3\""; fi
}

# prints NAME TEXT: of what the run before wrote to stderr, a line matches this.
prints() {
    if grep -qE -- "$2" "$OUT/stderr"; then echo "pass $1"; else echo "FAIL $1: no \"$2\" in: $(tail -n 2 "$OUT/stderr" | tr '\n' ' ')"; fi
}
# writes NAME REASON COMMAND: the command, in which $program stands for it, ends with 1 for want of a place to write to.
writes() {
    local name=$1 rc=0
    program=$program dense=$dense bash -c "$3" 2>"$OUT/stderr" </dev/null || rc=$?
    is "$name/status" $rc 1
    prints "$name/why" "cannot be written: $2"
}

# ---- what it is for

ends help 0 "--prompt-ids IDS" --help
for schedule in static chiplet dynamic auto unfused unaware; do
    ends $schedule 0 "launch to first token" $dense --prompt-ids 318 --steps 6 --schedule $schedule --chiplets 2
    is "$schedule/tokens" "$(cat "$OUT/stdout")" "tokens: 195 361 480 368 490 190"
done
# Of a few steps a machine that is busy may see none begin.
ends times 0 "TPOT" $dense --prompt-ids 318 --steps 48
# 30 tokens of each are wanted, but 368 ends a sequence: the fourth token of one, and none of the other. The folder says
# so where it has a generation_config.json, whatever config.json says.
rm -rf "$OUT/model" "$OUT/chat"
cp -r $dense "$OUT/chat"
echo '{"eos_token_id": [368, 511]}' >"$OUT/chat/generation_config.json"
sed -i 's/"eos_token_id": null/"eos_token_id": 361/' "$OUT/chat/config.json"
ends eos 0 "TPOT" "$OUT/chat" --prompt-ids 318 --steps 300 --trace "$OUT/step.svg"
is eos/tokens "$(cat "$OUT/stdout")" "tokens: 195 361 480 368"
prints eos/steps "^TPOT .* over 3 steps of 1 sequences;"
prints eos/trace "^trace: STATIC, step 3,"
prints eos/traced "(embed|lm_head)"
ends eos_of_one 0 "TPOT" "$OUT/chat" --prompt-ids "318;460,191,256,334,255" --steps 30
prints eos_of_one/steps "^TPOT .* over 29 steps of 1\.103 sequences;"
# 33 tokens twice: two pages are shared, and the second sequence computes one token.
ends shared 0 "34 rows of prompts were computed; 2 of 4 pages are shared" $dense --prompt-ids "33*7" --batch 2 --steps 4 --share-prefixes
is shared/tokens "$(sed -n 1p "$OUT/stdout")" "$(sed -n 2p "$OUT/stdout")"
for steps in 1 2; do
    ends short_$steps 0 "first token" $dense --prompt-ids 318 --steps $steps
    prints short_$steps/times "launch to first token [0-9.]+ ms, process start to first token [0-9.]+ s"
done
ends no_bench 0 "TPOT" $dense --prompt-ids 318 --steps 48
is no_bench/silent "$(grep -c "plain read" "$OUT/stderr")" 0
ends bench 0 "that a plain read reaches here" $dense --prompt-ids 318 --steps 48 --bench
ends longest 0 "tokens: " $dense --prompt-ids "509*7" --steps 4
ends batch 0 "load " $dense --prompt-ids "318;460,191,256,334,255" --batch 3 --steps 4
is batch/tokens "$(tr '\n' ' ' <"$OUT/stdout")" "tokens: 195 361 480 368 tokens: 138 31 101 345 tokens: 195 361 480 368 "
ends rounds 0 "TPOT" $dense --prompt-ids "318;460,191,256,334,255" --batch 130 --steps 6
is rounds/tokens "$(sort "$OUT/stdout" | uniq -c | tr -s ' \n' ' ')" " 65 tokens: 138 31 101 345 157 354 65 tokens: 195 361 480 368 490 190 "
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

# ---- text: the tiny model has a tokenizer of 512 tokens, and knows no language

ends prompt 0 "TPOT" $dense --prompt "The weights are" --steps 48
text=$(cat "$OUT/stdout")
is prompt/lines "$(wc -l <"$OUT/stdout")" 1
printf 'The weights are' >"$OUT/prompt.txt"
ends prompt_file 0 "TPOT" $dense --prompt-file "$OUT/prompt.txt" --steps 48
is prompt_file/text "$(cat "$OUT/stdout")" "$text"
ends batch_of_text 0 "== sequence 1" $dense --prompt "The weights are" --steps 48 --batch 2
is batch_of_text/text "$(sed -n 2p "$OUT/stdout")" "$text"
ends chat 0 "TPOT" $dense --chat --prompt Hi --system Short --no-thinking --steps 48
text=$(cat "$OUT/stdout")
ends template 0 "TPOT" $dense --steps 48 --prompt "<|im_start|>system
Short<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<think>

</think>

"
is template/text "$(cat "$OUT/stdout")" "$text"
answers() { # NAME MESSAGES [ARGUMENT...]: a conversation, a message per line
    local name=$1 said=$2 rc=0
    shift 2
    printf '%b' "$said" | "$program" $dense --chat --steps 8 --ignore-eos "$@" >"$OUT/stdout" 2>"$OUT/stderr" || rc=$?
    is "$name/status" "$rc" 0
}
answers one_turn 'Hi'
first=$(cat "$OUT/stdout")
answers conversation '\nHi\n\nAnd?\n'
is conversation/first "$(head -c ${#first} "$OUT/stdout")" "$(head -c ${#first} <<<"$first")"
is conversation/second $(($(wc -c <"$OUT/stdout") > $(wc -c <<<"$first"))) 1
both=$(cat "$OUT/stdout")
# A line that is no message changes nothing of the conversation.
answers not_utf8 'Hi\nno\0377thing\nAnd?\n'
is not_utf8/answers "$(cat "$OUT/stdout")" "$both"
prints not_utf8/why "^the message is left out: not UTF-8 at byte 2$"
answers long_message "Hi\\n$(seq -s ' ' 400)\\nAnd?\\n"
is long_message/answers "$(cat "$OUT/stdout")" "$both"
prints long_message/why "^the message is left out: [0-9]+ tokens and an answer of 8 do not fit a context of 512 "
# Where two turns do not fit, an answer is what it is without the oldest one; what the system says stays.
for system in "" "--system Short"; do
    name=full_context${system:+/with_system}
    # shellcheck disable=SC2086
    {
        answers $name/alone 'And?' $system --context 40
        second=$(cat "$OUT/stdout")
        answers $name 'Hi\nAnd?\n' $system --context 40
    }
    is $name/answer "$(tail -n 1 "$OUT/stdout")" "$(tail -n 1 <<<"$second")"
    prints $name/why "^the context of 40 tokens is full: the oldest turns are left out, 1 of them$"
done
# The first sequence of a batch draws what it draws alone.
draw="--prompt-ids 318 --steps 24 --temperature 0.9 --top-k 40 --top-p 0.95 --min-p 0.01"
# shellcheck disable=SC2086
{
    ends draw 0 "TPOT" $dense $draw --seed 7
    tokens=$(cat "$OUT/stdout")
    ends draw_again 0 "TPOT" $dense $draw --seed 7 --batch 2 --schedule dynamic
    is draw_again/first "$(head -n 1 "$OUT/stdout")" "$tokens"
    is draw_again/second $([ "$(tail -n 1 "$OUT/stdout")" != "$tokens" ] && echo differs) differs
    ends draw_otherwise 0 "TPOT" $dense $draw --seed 8
    is draw_otherwise/differs $([ "$(cat "$OUT/stdout")" != "$tokens" ] && echo differs) differs
    # A seed of its own each time, not of the clock: of more than 32 bits, and it draws the same again.
    ends draw_seedless 0 "seed " $dense $draw
    tokens=$(cat "$OUT/stdout") seed=$(sed -n 's/^seed //p' "$OUT/stderr")
    ends draw_its_seed 0 "TPOT" $dense $draw --seed "$seed"
    is draw_its_seed/tokens "$(cat "$OUT/stdout")" "$tokens"
    ends draw_seedless_again 0 "seed " $dense $draw
    other=$(sed -n 's/^seed //p' "$OUT/stderr")
    is draw_seedless/large $(((seed | other) >> 32 > 0 && seed != other)) 1
    ends large_seed 2 "--seed needs a number from 1 to 2^63 - 1" $dense $draw --seed 9223372036854775808
}
ends ignore_eos 0 "TPOT" "$OUT/chat" --prompt-ids 318 --steps 6 --ignore-eos
is ignore_eos/tokens "$(cat "$OUT/stdout")" "tokens: 195 361 480 368 490 190"
# interrupt OPTION...: Ctrl-C, once the text has begun: what there is of it ends with a line feed, and the status is 130.
interrupt() {
    python3 - "$program" $dense --prompt Hi --steps 480 --ignore-eos "$@" <<'PYTHON'
import signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
text = p.stdout.read(10)
p.send_signal(signal.SIGINT)
more, said = p.communicate()
print(p.returncode, (text + more).endswith(b"\n"), said.decode().strip())
PYTHON
}
is interrupt "$(interrupt)" "130 True interrupted"

# ---- what cannot be written is an error, before the bandwidth is measured, and says why

full="No space left on device"
writes full_disk "$full" '$program $dense --prompt-ids 1 --steps 40 --bench >/dev/full'
is full_disk/first "$(grep -c TPOT "$OUT/stderr")" 0
writes full_disk_long "$full" '$program $dense --prompt-ids 1 --steps 40 --batch 64 --ignore-eos >/dev/full'
writes closed_pipe "Broken pipe" 'set -o pipefail; $program $dense --prompt-ids 1 --steps 2 | exec 0<&- sleep 0.01; exit ${PIPESTATUS[0]}'
writes closed_pipe_text "Broken pipe" 'set -o pipefail; $program $dense --prompt a --steps 40 | exec 0<&- sleep 0.01; exit ${PIPESTATUS[0]}'
writes closed "Bad file descriptor" '$program $dense --prompt-ids 1 --steps 2 >&-'
writes full_disk_text "$full" '$program $dense --prompt a --steps 40 >/dev/full'
writes full_disk_texts "$full" '$program $dense --prompt a --steps 40 --batch 2 >/dev/full'
writes full_disk_help "$full" '$program --help >/dev/full'
writes full_disk_check "$full" '$program $dense --check $dense/expected.json >/dev/full'
writes full_disk_trace "$full" 'ln -sf /dev/full "'"$OUT"'/full.svg"; $program $dense --prompt-ids 1 --steps 2 --trace "'"$OUT"'/full.svg" >/dev/null'

# A file that was there stays until a new one is complete, and nothing else is left beside it.
mkdir -p "$OUT/traces"
rm -f "$OUT"/traces/*
echo before >"$OUT/traces/old.svg"
ln -s old.svg "$OUT/traces/link.svg"
ends refused_trace 2 "No such file" "$OUT/nothing" --prompt-ids 1 --trace "$OUT/traces/old.svg"
is refused_trace/file "$(cat "$OUT/traces/old.svg")" before
echo before >"$OUT/traces/old.json"
writes no_room_for_trace "File too large" "ulimit -f 6; trap '' XFSZ; \$program \$dense --prompt-ids 1 --steps 2 --trace $OUT/traces/old.json"
is no_room_for_trace/file "$(cat "$OUT/traces/old.json")" before
is interrupted_trace "$(interrupt --trace "$OUT/traces/old.svg")" "130 True interrupted"
is interrupted_trace/file "$(cat "$OUT/traces/old.svg")" before
# One file is opened in place of standard output, which is closed.
writes trace_only "Bad file descriptor" "\$program \$dense --prompt-ids 1 --steps 2 --trace $OUT/traces/old.svg >&-"
ends trace_by_link 0 "TPOT" $dense --prompt-ids 1 --steps 48 --trace "$OUT/traces/link.svg"
is trace_by_link/file "$(head -c 4 "$OUT/traces/old.svg")" "<svg"
is trace_by_link/others "$(ls "$OUT/traces" | tr '\n' ' ')" "link.svg old.json old.svg "

# ---- weights in fewer bits

# shellcheck disable=SC2086
gcc -std=c11 -O1 ${FLAGS:-} examples/tools/quantize.c -o "$OUT/quantize" ${LIBRARIES:--ljansson} -lm
rm -rf "$OUT/int8"
"$OUT/quantize" $dense "$OUT/int8" int8 && echo "pass quantize" || echo "FAIL quantize: ended with $?"
ends quantised 0 "tokens: 195" "$OUT/int8" --prompt-ids 318 --steps 1
ends dequantised 0 "tokens: 195" "$OUT/int8" --prompt-ids 318 --steps 1 --dequantize
rc=0
"$OUT/quantize" $dense "$OUT/int8" fp8 2>"$OUT/stderr" || rc=$?
is quantize_over/status $rc 1
prints quantize_over/why "int8: File exists"
rc=0
"$OUT/quantize" "$OUT/int8" "$OUT/again" fp8 2>"$OUT/stderr" || rc=$?
is quantize_again/status $rc 1
prints quantize_again/why "is quantised already"
for words in "" "int5" "fp8 --zeros" "int4 --group 48" "int4 --group"; do
    rc=0
    # shellcheck disable=SC2086
    "$OUT/quantize" $dense "$OUT/none" $words 2>"$OUT/stderr" || rc=$?
    is "quantize_usage_${words// /_}" $rc 2
done

# ---- what is wrong is said, and ends with 2: by turns

refuses no_folder "MODEL_DIR"
refuses unknown_option "--colour" $dense --colour
refuses not_quantised "--dequantize: config.json has no quantization_config" $dense --prompt-ids 1 --dequantize
refuses no_value "--steps" $dense --prompt-ids 1 --steps
refuses no_number "--steps needs a number" $dense --prompt-ids 1 --steps -3
refuses no_prompt "--prompt-ids" $dense
refuses odd_prompt "--prompt-ids must be like" $dense --prompt-ids "1,,2"
refuses unknown_token "token 512 is not one of the vocabulary's 512" $dense --prompt-ids 512
refuses unknown_schedule "--schedule is static" $dense --prompt-ids 1 --schedule fast
refuses large_batch "--batch is at most 256" $dense --prompt-ids 1 --batch 257
refuses small_context "--context" $dense --prompt-ids 1,2,3 --steps 4 --context 5
refuses many_chiplets "--chiplets 33" $dense --prompt-ids 1 --chiplets 33
refuses many_workers "--workers 2000: at least 1 here, at most 1024" $dense --prompt-ids 1 --workers 2000
refuses few_workers "--workers 3: at least 4 here" $dense --prompt-ids 1 --workers 3 --chiplets 4
ends more_workers_than_processors 0 "launch to first token" $dense --prompt-ids 318 --steps 6 --workers 17
refuses trace_of_what "must end in .svg or .json" $dense --prompt-ids 1 --steps 2 --trace "$OUT/step.pdf"
refuses twice "--steps is given twice" $dense --prompt-ids 1 --steps 2 --steps 3
refuses smaller_batch "--batch 1: --prompt-ids has 2 sequences" $dense --prompt-ids "1;2" --batch 1
only="only one of --prompt-ids, --prompt and --prompt-file"
refuses two_prompts "$only" $dense --prompt a --prompt-ids 1
refuses two_texts "$only" $dense --prompt a --prompt-file "$OUT/prompt.txt"
refuses chat_of_ids "--chat takes text" $dense --chat --prompt-ids 1
refuses no_chat "--system has a meaning with --chat only" $dense --prompt a --system b
refuses no_chat_either "--no-thinking has a meaning with --chat only" $dense --prompt a --no-thinking
refuses batch_of_chats "a conversation has no --batch" $dense --chat --batch 2
refuses no_temperature "need a --temperature" $dense --prompt a --top-k 3
refuses cold "--temperature needs a number above 0" $dense --prompt a --temperature 0
refuses odd_number "--top-p needs a number above 0" $dense --prompt a --temperature 1 --top-p nan
refuses large_top_p "--top-p is at most 1" $dense --prompt a --temperature 1 --top-p 1.5
refuses empty_prompt "the prompt is empty" $dense --prompt ""
refuses no_such_prompt "none.txt: No such file" $dense --prompt-file "$OUT/none.txt"
refuses no_utf8 "text: not UTF-8 at byte 1" $dense --prompt "$(printf 'a\377')"
refuses no_tokenizer "tokenizer.json: No such file" $moe --prompt a
refuses long_text "a prompt of 3 tokens does not fit a context of 2 (--context)" $dense --prompt "1 2" --context 2
for option in "--prompt a" "--prompt-file a" --chat "--temperature 1" --ignore-eos "--prompt-ids 1" "--steps 3" "--batch 2" "--context 99" --random-weights --bench "--trace $OUT/step.svg"; do
    # shellcheck disable=SC2086
    refuses "check${option%% *}" "${option%% *} has no meaning with --check" $dense --check $dense/expected.json $option
done
refuses long_prompt "more than 16777216 tokens" $dense --prompt-ids "16777216*1,1*2"
refuses too_long "a context of 514 tokens is longer than max_position_embeddings, 512" $dense --prompt-ids "511*7" --steps 4
refuses long_context "a context of 513 tokens is longer than max_position_embeddings, 512" $dense --prompt-ids 1 --context 513
# 4 TB of keys and values.
mkdir -p "$OUT/huge"
sed 's/"max_position_embeddings": 512/"max_position_embeddings": 16777216/' $dense/config.json >"$OUT/huge/config.json"
ends memory 2 "GB of memory are needed (weights 0.002, 64 sequences of up to 16777216 tokens" "$OUT/huge" \
    --random-weights --batch 64 --context 16777216 --steps 2
prints memory/what_fits "are free: --context [0-9]+ would fit"
refuses trace_nowhere "cannot be written" $dense --prompt-ids 1 --steps 2 --trace "$OUT/no/such/folder.svg"
refuses missing_folder "nothing: No such file" "$OUT/nothing" --prompt-ids 1
refuses missing_reference "nothing.json" $dense --check "$OUT/nothing.json"

# hostile NAME WORDS FILE COMMAND...: the command changes the copy of a checkpoint's file before it is loaded; by turns, too.
hostile() {
    local name=$1 words=$2 file=$3
    in_turn $((refusals += 1)) || return 0
    shift 3
    rm -rf "$OUT/model"
    cp -r "${model:-$dense}" "$OUT/model"
    "$@" "$OUT/model/$file"
    ends "$name" "${status:-2}" "$words" "$OUT/model" --prompt-ids "${prompt:-1}" --steps 2
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
hostile quantised 'config.json: quantization_config: weight_block_size: missing' config.json sed -i 's/"use_cache": true/"quantization_config": {"quant_method": "fp8"}/'
status=0 hostile unknown_field "config.json: passed over, though results may depend on it: shiny" config.json sed -i 's/"use_cache"/"shiny"/'
# A dimension that the tasks cannot have is named, with what it may be.
mkdir -p "$OUT/shape"
shape() { # NAME WORDS FIXTURE SED
    sed "$4" "$3/config.json" >"$OUT/shape/config.json"
    refuses "shape_$1" "config.json: $2" "$OUT/shape" --random-weights --steps 2
}
shape hidden_size "hidden_size: 1000, this decoder needs a multiple of 32" $dense 's/"hidden_size": 128/"hidden_size": 1000/'
shape head_dim "head_dim: 12, this decoder needs a multiple of 8, at most 256" $dense 's/"head_dim": 32/"head_dim": 12/'
shape large_head_dim "head_dim: 264, this decoder needs a multiple of 8, at most 256" $dense 's/"head_dim": 32/"head_dim": 264/'
shape heads "num_attention_heads * head_dim: 24, this decoder needs a multiple of 32" $dense \
    's/"head_dim": 32/"head_dim": 24/; s/"num_attention_heads": 4/"num_attention_heads": 1/; s/"num_key_value_heads": 2/"num_key_value_heads": 1/'
shape top_k "num_experts_per_tok: 17, this decoder needs at most 16" $moe 's/"num_local_experts": 8/"num_local_experts": 32/; s/"num_experts_per_tok": 2/"num_experts_per_tok": 17/'
# Text that does not fit into memory: nothing is wrong with the file, so the status is 1. Too many values are not even parsed.
metadata() { # BYTES VALUES FILE: puts a text of so many bytes, and so many objects, in front of a header's tensors
    python3 - "$@" <<'PYTHON'
import json, sys
with open(sys.argv[3], "rb") as f:
    n = int.from_bytes(f.read(8), "little")
    header, data = json.loads(f.read(n)), f.read()
header.pop("__metadata__", None)
header = b'{"__metadata__": {"a": "%s", "b": [%s0]}, ' % (b"a" * int(sys.argv[1]), b"{}," * int(sys.argv[2])) + json.dumps(header).encode()[1:]
with open(sys.argv[3], "wb") as f:
    f.write(len(header).to_bytes(8, "little") + header + data)
PYTHON
}
status=0 hostile long_metadata "first token" model.safetensors metadata 3000000 1000
status=1 ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=2 hostile no_memory "model.safetensors: out of memory" model.safetensors metadata 3000000 1000
hostile many_values "JSON values, expected at most 2097152" model.safetensors metadata 1 3000000
hostile half_tied "lm_head.weight: differs from model.embed_tokens.weight" config.json sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/'

# Of a tensor in a checkpoint, all values: norms and their like are finite, and what they make is not.
fill() { # TENSOR HEX FILE
    python3 - "$@" <<'PYTHON'
import json, sys
with open(sys.argv[3], "r+b") as f:
    n = int.from_bytes(f.read(8), "little")
    begin, end = json.loads(f.read(n))[sys.argv[1]]["data_offsets"]
    f.seek(8 + n + begin)
    f.write(bytes.fromhex(sys.argv[2]) * ((end - begin) // 2))
PYTHON
}
status=1 hostile infinite_logits "sequence 0, after 1 tokens: the logit of token 0 is infinite" model.safetensors fill model.norm.weight 7f7f
status=1 model=$moe hostile infinite_scores "sequence 0, after 1 tokens: the logit of token 0 is infinite" model.safetensors fill model.layers.0.post_attention_layernorm.weight 7f7f
# A norm whose squares overflow makes zeros of everything, of which the first token would be chosen: of the residual stream, of the
# head of a key, and of one token of a prompt whose last one is as it was.
status=1 hostile overflowed_norm "sequence 0, after 1 tokens: the logit of token 0 is infinite" model.safetensors fill model.embed_tokens.weight 0060
status=1 hostile overflowed_key "sequence 0, after 1 tokens: the logit of token 0 is infinite" model.safetensors fill model.layers.3.self_attn.k_proj.weight 8060
status=1 hostile overflowed_query "sequence 0, after 1 tokens: the logit of token 0 is infinite" model.safetensors fill model.layers.3.self_attn.q_proj.weight 8060
row() { # FILE: the embedding of token 7
    python3 - "$@" <<'PYTHON'
import json, sys
with open(sys.argv[1], "r+b") as f:
    n = int.from_bytes(f.read(8), "little")
    begin = json.loads(f.read(n))["model.embed_tokens.weight"]["data_offsets"][0]
    f.seek(8 + n + begin + 7 * 256)
    f.write(bytes.fromhex("0060") * 128)
PYTHON
}
status=1 prompt=20*7,1 hostile overflowed_row "sequence 0, after 21 tokens: the logit of token 0 is infinite" model.safetensors row

# The same values as float: it is said that matrices are rounded, and nothing changes.
widen() { # FILE
    python3 - "$1" <<'PYTHON'
import json, sys
with open(sys.argv[1], "rb") as f:
    n = int.from_bytes(f.read(8), "little")
    header, data = json.loads(f.read(n)), f.read()
out, header = b"", {k: v for k, v in header.items() if k != "__metadata__"}
for tensor in header.values():
    begin, end = tensor["data_offsets"]
    wide = bytearray(2 * (end - begin))
    wide[2::4], wide[3::4] = data[begin:end:2], data[begin + 1:end:2]
    tensor.update(dtype="F32", data_offsets=[len(out), len(out) + len(wide)])
    out += wide
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text + out)
PYTHON
}
status=0 hostile widened "30 matrices are F16 or F32 in the checkpoint: rounded to bf16" model.safetensors widen
