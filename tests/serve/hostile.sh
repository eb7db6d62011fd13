#!/usr/bin/env bash
# Requests that break the rules of HTTP, to the server of examples/serve and to a proxy before it
# (hostile.py): with the engine of the tests, under AddressSanitizer.
#
#   OUT=FOLDER LIBRARIES="-l..." [FLAGS="..."] tests/serve/hostile.sh
set -eu

mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
# shellcheck disable=SC2086
gcc -std=c11 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all ${FLAGS:-} -I. \
    examples/serve/serve.c tests/serve/engine_test.c -o "$OUT/serve" $LIBRARIES

cat /dev/null >"$OUT/served"
"$OUT/serve" tests/fixtures/qwen3-tiny --port 0 --seconds 5 --server-name models.example,www.models.example \
    --cors https://chat.example --of-address 20 >"$OUT/served" 2>"$OUT/said" &
server=$!
trap 'kill $server 2>/dev/null || true; [ ! -e "$OUT/nginx.pid" ] || kill "$(cat "$OUT/nginx.pid")" 2>/dev/null || true' EXIT
port=
for _ in $(seq 6000); do
    port=$(sed -n 's/^serving .*:\([0-9]*\), context.*/\1/p' "$OUT/served")
    [ -z "$port" ] && kill -0 $server || break
    sleep 0.05
done

python3 tests/serve/hostile.py "$port" direct

# ---- pages of other sites

asked() { # NAME PATTERN CURL_ARGUMENT...
    local name=$1 pattern=$2 got
    shift 2
    got=$(curl -s -i -m 20 "$@" | tr -d '\r')
    # shellcheck disable=SC2254
    case $got in $pattern) echo "pass $name" ;; *) echo "FAIL $name: $got" ;; esac
}
url=http://127.0.0.1:$port/v1/chat/completions
asked preflight "HTTP/1.1 204*Allow-Origin: https://chat.example*Vary: Origin*Allow-Headers: authorization,x-stainless-os*" -X OPTIONS "$url" \
    -H 'Origin: https://chat.example' -H 'Access-Control-Request-Method: POST' -H 'Access-Control-Request-Headers: authorization,x-stainless-os'
asked foreign_preflight "HTTP/1.1 403*" -X OPTIONS "$url" -H 'Origin: https://evil.example' -H 'Access-Control-Request-Method: POST'
asked readable_by_page "HTTP/1.1 400*Allow-Origin: https://chat.example*" "$url" -H 'Origin: https://chat.example' \
    -H 'Content-Type: application/json' -d '{}'

# ---- connections of one address

python3 - "$port" <<'PYTHON'
import socket, sys

kept = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(40)]
open_, closed = 0, 0
for s in kept:
    s.settimeout(5)
    try:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if s.recv(12) == b"HTTP/1.1 200":
            open_ += 1
        else:
            closed += 1
    except OSError:
        closed += 1
right = open_ == 20 and closed == 20
print("pass connections_of_an_address" if right else f"FAIL connections_of_an_address: {open_} are served, {closed} closed")
PYTHON

# ---- behind a proxy, which keeps connections to the server

free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
front=$(free)
cat >"$OUT/nginx.conf" <<CONF
pid $OUT/nginx.pid;
error_log $OUT/nginx.log;
worker_processes 1;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path $OUT/body; proxy_temp_path $OUT/proxy; fastcgi_temp_path $OUT/fastcgi;
    uwsgi_temp_path $OUT/uwsgi; scgi_temp_path $OUT/scgi;
    client_max_body_size 0;
    upstream models { server 127.0.0.1:$port; keepalive 4; }
    server {
        listen 127.0.0.1:$front;
        location / {
            proxy_pass http://models; proxy_http_version 1.1; proxy_request_buffering off;
            proxy_set_header Host \$http_host; proxy_set_header Connection "";
        }
    }
}
CONF
nginx -p "$OUT" -c "$OUT/nginx.conf" 2>"$OUT/nginx.err"
for _ in $(seq 100); do
    curl -s -o /dev/null "http://127.0.0.1:$front/health" && break
    sleep 0.05
done
python3 tests/serve/hostile.py "$front" proxy | sed 's/^\(pass\|FAIL\) /\1 behind_a_proxy\//'

kill -QUIT "$(cat "$OUT/nginx.pid")"
rc=0
kill -TERM $server
wait $server || rc=$?
trap - EXIT
if [ $rc = 0 ]; then echo "pass stops"; else echo "FAIL stops: ended with $rc: $(tail -n 5 "$OUT/said" | tr '\n' ' ')"; fi
