#!/usr/bin/env bash
# The program of examples/serve as a user calls it, with the engine of the tests: what it prints, and the status it ends with.
#
#   OUT=FOLDER LIBRARIES="-l..." [FLAGS="..."] tests/serve/program.sh
#
# What it builds goes to $OUT. AddressSanitizer looks at each run, and for leaks at its end.
set -eu

mkdir -p "$OUT"
# shellcheck disable=SC2086
gcc -std=c11 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all ${FLAGS:-} -I. \
    examples/serve/serve.c tests/serve/engine_test.c -o "$OUT/serve" $LIBRARIES
model=tests/fixtures/qwen3-tiny

# ends NAME STATUS WORDS ARGUMENT...: it ends with that status, and what it prints has these words.
ends() {
    local name=$1 wanted=$2 words=$3 rc=0
    shift 3
    "$OUT/serve" "$@" >"$OUT/printed" 2>&1 </dev/null || rc=$?
    if [ $rc != "$wanted" ]; then
        echo "FAIL $name: ended with $rc, expected $wanted: $(tail -n 1 "$OUT/printed")"
    elif ! grep -qF -- "$words" "$OUT/printed"; then
        echo "FAIL $name: did not print \"$words\": $(tail -n 1 "$OUT/printed")"
    else
        echo "pass $name"
    fi
}
is() { # NAME WHAT PATTERN
    # shellcheck disable=SC2254
    case $2 in $3) echo "pass $1" ;; *) echo "FAIL $1: \"$2\", expected \"$3\"" ;; esac
}

# starts ARGUMENT...: starts it on a free port, and waits until it serves. Sets pid and port.
starts() {
    rm -f "$OUT/served"
    "$OUT/serve" "$model" --port 0 "$@" >"$OUT/served" 2>"$OUT/said" &
    pid=$! port=
    for _ in $(seq 6000); do
        port=$(sed -n 's/^serving .*:\([0-9]*\), context.*/\1/p' "$OUT/served" 2>/dev/null) || true
        [ -z "$port" ] && kill -0 $pid 2>/dev/null || return 0
        sleep 0.05
    done
}
stops() { # NAME SIGNAL
    local rc=0
    kill "-$2" $pid
    wait $pid || rc=$?
    is "$1" $rc 0
}

# ---- what is wrong is said, and ends with 2

ends help 0 "--api-key-file FILE" --help
ends no_folder 2 "no MODEL_DIR"
ends two_folders 2 "what is b?" a b
ends unknown_option 2 "--colour" $model --colour
ends no_value 2 "--port needs a value" $model --port
for option in context batch chunk chunk-beside queue body connections of-address seconds drain; do
    ends "no_number_$option" 2 "--$option needs a number from 1" $model --$option 0
done
ends large_port 2 "--port needs a number from 0 to 65535" $model --port 65536
ends no_port 2 "--port needs a number" $model --port http
ends large_batch 2 "--batch needs a number from 1 to 256" $model --batch 257
ends missing_key 2 "nothing: No such file" $model --api-key-file "$OUT/nothing"
: >"$OUT/empty"
ends empty_key 2 "must have 1 to" $model --api-key-file "$OUT/empty"
ends log_nowhere 2 "No such file" $model --log "$OUT/no/such/folder"
ends trace_nowhere 2 "No such file" $model --trace "$OUT/no/such/folder"
ends many_connections 2 "this process may have" $model --connections "$(($(ulimit -Hn) < 65536 ? $(ulimit -Hn) : 65536))"
mkdir -p "$OUT/model"
echo '{' >"$OUT/model/tokenizer.json"
ends broken_tokenizer 2 "tokenizer.json" "$OUT/model"
ends unknown_template 2 "--chat-template needs qwen3" $model --chat-template llama

# What the model's files say of conversations and of how tokens are drawn.
mkdir -p "$OUT/speaks"
cp $model/* "$OUT/speaks"
echo '{"do_sample": true, "temperature": 0.5, "top_k": 20}' >"$OUT/speaks/generation_config.json"
echo '{{ messages }}' >"$OUT/speaks/chat_template.jinja"
ends template_of_others 2 "chat_template.jinja: the chat template is none of those" "$OUT/speaks"
model=$OUT/speaks starts --chat-template qwen3-thinking
is drawing "$(cat "$OUT/said")" "*temperature 0.5, top_p 1, min_p 0, top_k 20*"
stops drawing_ends TERM
ends no_address 1 "port 8080" $model --host nowhere.example

# A file that was there stays until it serves, and nothing is left beside it.
mkdir -p "$OUT/files"
rm -f "$OUT"/files/*
for option in log trace; do
    echo before >"$OUT/files/$option"
    ends "refused_$option" 2 "tokenizer.json" "$OUT/model" --$option "$OUT/files/$option"
    is "refused_$option/file" "$(cat "$OUT/files/$option")" before
done
is refused/others "$(ls "$OUT/files" | tr '\n' ' ')" "log trace "
# What cannot be written is said, and why.
full() { # NAME WORDS COMMAND
    local rc=0
    bash -c "$3" 2>"$OUT/printed" </dev/null || rc=$?
    is "$1" "$rc $(tail -n 1 "$OUT/printed")" "1 serve: $2 cannot be written: $4"
}
full full_help "standard output" "$OUT/serve --help >/dev/full" "No space left on device"
full full_disk "standard output" "$OUT/serve $model --port 0 >/dev/full" "No space left on device"
full closed "standard output" "$OUT/serve $model --port 0 --log $OUT/log >&-" "Bad file descriptor"
full full_trace "--trace /dev/full" "$OUT/serve $model --port 0 --trace /dev/full" "No space left on device"

# ---- what it prints, and how it ends

printf 'secret\nsecond line\n' >"$OUT/key"
starts --api-key-file "$OUT/key" --name some-model --log "$OUT/log" --trace "$OUT/trace" --context 100
is serving "$(cat "$OUT/served")" "serving some-model on http://127.0.0.1:*, context 100, text and token ids"
is no_key "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/v1/models")" 401
is key "$(curl -s -H 'Authorization: Bearer secret' "http://127.0.0.1:$port/v1/models")" '*"id":"some-model"*"max_model_len":100*'
is answer "$(curl -s -H 'Authorization: Bearer secret' -H 'Content-Type: application/json' -d '{"prompt":[5],"max_tokens":2}' \
    "http://127.0.0.1:$port/v1/completions")" '*"token_ids":?5,5?*'
is talks_in_other_case "$(curl -s -H 'authorization: bearer secret' "http://127.0.0.1:$port/version")" '{"version":"*"}'
ends port_in_use 1 "cannot listen" $model --port "$port"
stops interrupted INT
is log "$(cat "$OUT/log")" "*1 *reactive *arrives *1 *reactive *finished *"
is trace "$(python3 -c "import json; print(sum(e['ph'] == 'X' for e in json.load(open('$OUT/trace'))))")" 2
if [ -e /proc/net/if_inet6 ] && grep -q ' lo$' /proc/net/if_inet6; then
    starts --host ::1
    is ipv6 "$(curl -s "http://[::1]:$port/health")" '*"status":"ok"*'
    stops ipv6_ends TERM
fi
starts --host 0.0.0.0
is everywhere "$(cat "$OUT/said")" "*anyone who reaches 0.0.0.0 can use it*"
stops everywhere_ends TERM
