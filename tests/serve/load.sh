#!/usr/bin/env bash
# The server of examples/serve under load on 127.0.0.1: wrk, while other clients stall, leave and send nonsense. Then no
# request is left, nothing has leaked, and it stops when asked. Prints a table with p99, which is not judged: how long an
# answer takes is this machine's affair.
#
#   OUT=FOLDER LIBRARIES="-l..." [FLAGS="..."] [ENGINE=FILE.c] tests/serve/load.sh [CONNECTIONS [SECONDS]]
#
# ENGINE: instead of tests/serve/engine_test.c; MODEL: the folder of a model; SANITIZE: instead of address,undefined. What it builds goes to $OUT.
set -eu

connections=${1:-200} seconds=${2:-1}
engine=${ENGINE:-tests/serve/engine_test.c}
mkdir -p "$OUT"
# shellcheck disable=SC2086
gcc -std=c11 -O1 -g1 -fno-omit-frame-pointer "-fsanitize=${SANITIZE:-address,undefined}" -fno-sanitize-recover=all ${FLAGS:-} -I. \
    examples/serve/serve.c "$engine" -o "$OUT/serve" $LIBRARIES

verdict() { # NAME WORDS STATUS
    if [ "$3" = 0 ]; then echo "pass $1"; else echo "FAIL $1: $2"; fi
}

rm -f "$OUT/serve.out"
# ThreadSanitizer of older compilers cannot place its shadow where addresses are much randomised.
fixed_addresses=()
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi
TEST_STEP_US=50 "${fixed_addresses[@]}" "$OUT/serve" "${MODEL:-tests/fixtures/qwen3-tiny}" --port 0 --context 512 --queue 4096 --seconds 20 \
    --connections $((connections + 100)) >"$OUT/serve.out" 2>"$OUT/serve.err" &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
for _ in $(seq 6000); do
    port=$(sed -n 's/.*127.0.0.1:\([0-9]*\),.*/\1/p' "$OUT/serve.out" 2>/dev/null) || true
    [ -z "$port" ] || break
    sleep 0.05
done
[ -n "$port" ] || {
    echo "FAIL start: $(tail -n 1 "$OUT/serve.err")"
    exit 1
}

# Clients that stall and leave.
python3 - "$port" "$seconds" "$((connections / 20))" >"$OUT/others" 2>&1 <<'PYTHON' &
import random, socket, sys, time

port, until, n = int(sys.argv[1]), time.time() + float(sys.argv[2]), int(sys.argv[3])
random.seed(1)


def request(body):
    return (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body


long = request(b'{"prompt":[1,2,3],"max_tokens":500,"stream":true,"ignore_eos":true}')
plain = request(b'{"prompt":[1,2,3],"max_tokens":500,"priority":"proactive"}')
kept, count = [], 0
while time.time() < until:
    s = socket.create_connection(("127.0.0.1", port))
    kind = count % 5
    count += 1
    if kind == 0:    # half a request
        s.sendall(long[:random.randrange(1, len(long))])
    elif kind == 1:  # a reader that never reads
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.sendall(long)
    elif kind == 2:  # bytes of a request changed
        bytes_ = bytearray(long)
        for _ in range(4):
            bytes_[random.randrange(len(bytes_))] = random.randrange(256)
        s.sendall(bytes_)
    else:            # leaves while it waits
        s.sendall(long if kind == 3 else plain)
    kept.append(s)
    if len(kept) > n:
        kept.pop(random.randrange(len(kept))).close()
    time.sleep(0.002)
print(count)
PYTHON
others=$!

ulimit -n $((connections + 100)) 2>/dev/null || true
wrk -t 2 -c "$connections" -d "${seconds}s" --timeout 30s -s tests/serve/load.lua \
    "http://127.0.0.1:$port" >"$OUT/wrk" 2>&1 || true
wait $others || true
grep '^|' "$OUT/wrk" || true
verdict answers "$(tail -n 3 "$OUT/wrk" | tr '\n' ' ')" "$(grep -qx 'wrong 0' "$OUT/wrk" && [ "$(tail -n 1 "$OUT/others")" -gt 10 ]; echo $?)"

# The clients are gone: so are their requests, within the time that a connection is given.
of() { curl -s --max-time 60 "http://127.0.0.1:$port/metrics" | sed -n "s/^$1 //p"; }
for _ in $(seq 3000); do
    left=$(of serve_http_requests_open)
    waiting=$(of 'serve_requests_\(waiting\|running\){[^}]*}' | sort -u | tr '\n' ' ')
    [ "$left/$waiting" != "1/0 " ] || break # the request that asks
    sleep 0.1
done
verdict no_request_is_left "$left are open" "$([ "$left" = 1 ]; echo $?)"
verdict no_job_is_left "$waiting" "$([ "$waiting" = "0 " ]; echo $?)"
cancelled=$(of 'serve_requests_total{priority="reactive",end="cancelled"}')
verdict clients_that_leave_cancel "$cancelled were cancelled" "$([ "$cancelled" -gt 0 ]; echo $?)"

# AddressSanitizer looks for leaks at the end; what sanitizers have reported is in the status.
rc=0
kill -TERM $server
wait $server || rc=$?
trap - EXIT
verdict stops "ended with $rc: $(tail -n 5 "$OUT/serve.err" | tr '\n' ' ')" $rc
