#!/usr/bin/env bash
# The server of examples/serve as stock clients use it (clients.mjs), with the engine of the tests.
#
#   OUT=FOLDER LIBRARIES="-l..." [FLAGS="..."] tests/serve/clients.sh
#
# The clients come by npm and stay in $OUT. Without them, since there is no registry, it is skipped.
set -eu

mkdir -p "$OUT"
packages=(openai@6 ai@6 @ai-sdk/openai-compatible@2 @langchain/openai@1 @langchain/core@1)
if [ "$(cat "$OUT/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    (cd "$OUT" && echo '{"private": true}' >package.json &&
        timeout 300 npm install --no-audit --no-fund --silent "${packages[@]}" >npm.log 2>&1) || {
        echo "skip clients: npm packages cannot be had: $(tail -n 1 "$OUT/npm.log")"
        exit
    }
    echo "${packages[*]}" >"$OUT/packages"
fi

# shellcheck disable=SC2086
gcc -std=c11 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all ${FLAGS:-} -I. \
    examples/serve/serve.c tests/serve/engine_test.c -o "$OUT/serve" $LIBRARIES
printf 'secret\n' >"$OUT/key"
: >"$OUT/served"
"$OUT/serve" tests/fixtures/qwen3-tiny --port 0 --context 4096 --api-key-file "$OUT/key" --drain 5 >"$OUT/served" 2>"$OUT/said" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
port=
for _ in $(seq 6000); do
    port=$(sed -n 's/^serving .*:\([0-9]*\), context.*/\1/p' "$OUT/served")
    [ -z "$port" ] && kill -0 $server || break
    sleep 0.05
done

cp tests/serve/clients.mjs "$OUT/clients.mjs"
timeout 300 node "$OUT/clients.mjs" "http://127.0.0.1:$port" secret

rc=0
kill -TERM $server
wait $server || rc=$?
trap - EXIT
if [ $rc = 0 ]; then echo "pass stops"; else echo "FAIL stops: ended with $rc: $(tail -n 5 "$OUT/said" | tr '\n' ' ')"; fi
