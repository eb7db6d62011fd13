"""Requests that RFC 9112 forbids, or that are ambiguous, and those of foreign sites, to a server without a key.

    hostile.py PORT direct      each has the status of the table, one answer, and where it says so the connection ends
    hostile.py PORT proxy       the server is behind a proxy, which may refuse first

In both, the rest of a request is never answered as another one: each has a question after it, GET /v1/models, where its
body could be thought to end. Prints a line for each, as tests do.
"""
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

PORT, DIRECT = int(sys.argv[1]), sys.argv[2] == "direct"
BODY = b'{"prompt":[1,2,3],"max_tokens":2}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\n"
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
BIG = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def whole(headers=b"", path=b"/v1/completions", host=b"localhost"):
    return (b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s%s\r\n%s"
            % (path, host, headers, LENGTH, BODY))


# name, bytes, statuses, 1: the connection ends with the answer
CASES = [
    ("plain", whole(), [200], 0),
    ("chunked", POST + CHUNKED + b"\r\n" + CHUNKS, [200], 0),
    ("chunked_by_another_case", POST + b"transfer-encoding: CHUNKED\r\n\r\n" + CHUNKS, [200], 0),
    ("length_and_coding", POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + NEXT, [400], 1),
    ("coding_and_length", POST + CHUNKED + b"Content-Length: %d\r\n\r\n0\r\n\r\n" % len(NEXT) + NEXT, [400], 1),
    ("two_lengths", POST + b"Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}" % (2 + len(NEXT)) + NEXT, [400], 1),
    ("same_length_twice", POST + LENGTH + LENGTH + b"\r\n" + BODY + NEXT, [400], 1),
    ("two_codings", POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS + NEXT, [501], 1),
    ("gzip_chunked", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS + NEXT, [501], 1),
    ("chunked_chunked", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS + NEXT, [501], 1),
    ("unknown_coding", POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS + NEXT, [501], 1),
    ("identity_coding", POST + b"Transfer-Encoding: identity\r\n\r\n" + NEXT, [501], 1),
    ("empty_coding", POST + b"Transfer-Encoding:\r\n\r\n" + NEXT, [501], 1),
    ("no_host", GET + b"\r\n", [400], 1),
    ("two_hosts", GET + b"Host: localhost\r\nHost: 127.0.0.1\r\n\r\n", [400], 1),
    ("space_before_colon", GET + b"Host : localhost\r\nHost: localhost\r\n\r\n", [400], 1),
    ("space_before_colon_of_length", POST + b"Content-Length : %d\r\n\r\n" % len(NEXT) + NEXT, [400], 1),
    ("tab_before_colon_of_coding", POST + LENGTH + b"Transfer-Encoding\t: chunked\r\n\r\n" + CHUNKS + NEXT, [400], 1),
    ("negative_length", POST + b"Content-Length: -1\r\n\r\n" + NEXT, [400], 1),
    ("signed_length", POST + b"Content-Length: +2\r\n\r\n{}" + NEXT, [400], 1),
    ("list_of_lengths", POST + b"Content-Length: 2, 2\r\n\r\n{}" + NEXT, [400], 1),
    ("length_of_twenty_digits", POST + b"Content-Length: 18446744073709551618\r\n\r\n{}" + NEXT, [413], 1),
    ("hexadecimal_length", POST + b"Content-Length: 0x2\r\n\r\n{}" + NEXT, [400], 1),
    ("negative_chunk", POST + CHUNKED + b"\r\n-1\r\n" + NEXT, [400], 1),
    ("huge_chunk", POST + CHUNKED + b"\r\nffffffffffffffff1\r\n" + NEXT, [413], 1),
    ("long_header", GET + b"Host: localhost\r\nX: " + b"a" * 17000 + b"\r\n\r\n", [431], 1),
    ("cookies_of_9_KiB", whole(b"Cookie: a=" + b"a" * 9000 + b"\r\n"), [200], 0),
    ("other_expectation", whole(b"Expect: tea\r\n"), [417], 1),
    ("told_before_it_sends", POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", [413], 1),
    ("compressed", whole(b"Content-Encoding: gzip\r\n"), [415], 0),
    ("foreign_host", whole(host=b"evil.example"), [403], 0),
    ("foreign_host_with_port", whole(host=b"evil.example:8080"), [403], 0),
    ("foreign_host_of_localhost", whole(host=b"localhost.evil.example"), [403], 0),
    ("foreign_host_in_the_line", GET.replace(b"/health", b"http://evil.example/health") + b"Host: evil.example\r\n\r\n",
     [403], 0),
    ("address", whole(host=b"127.0.0.1:8080"), [200], 0),
    ("address_in_brackets", whole(host=b"[::1]:8080"), [200], 0),
    ("name_without_a_dot", whole(host=b"server"), [200], 0),
    ("name_of_localhost", whole(host=b"a.localhost:80"), [200], 0),
    ("name_that_was_given", whole(host=b"models.example"), [200], 0),
    ("foreign_origin", whole(b"Origin: http://evil.example\r\n"), [403], 0),
    ("null_origin", whole(b"Origin: null\r\n"), [403], 0),
    ("own_origin", whole(b"Origin: http://localhost\r\n"), [200], 0),
    ("allowed_origin", whole(b"Origin: https://chat.example\r\n"), [200], 0),
    ("line_with_the_whole_address", GET.replace(b"/health", b"http://localhost/health") + b"Host: localhost\r\n\r\n",
     [200], 0),
    ("type_in_other_case", whole().replace(b"application/json", b"Application/JSON; charset=UTF-8"), [200], 0),
    ("type_that_begins_so", whole().replace(b"application/json", b"application/json-patch"), [415], 0),
    # Read to its end, so that the answer is read too.
    ("body_of_two_MiB", BIG % 2000000 + b"a" * 2000000, [413], 0),
    ("body_of_two_MiB_to_a_path_without_one", (BIG % 2000000).replace(b"/v1/completions", b"/nowhere") + b"a" * 2000000,
     [404, 413], 0),
]
# What the library that reads headers answers itself; some versions send the status line of such a refusal twice.
OF_LIBRARY = ("negative_length", "signed_length", "list_of_lengths", "length_of_twenty_digits", "hexadecimal_length")


def is_whole(out):
    """Whether these bytes have an answer to its end, as its Content-Length says it, whatever comes after."""
    head, _, body = out.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        return is_whole(body)
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(lengths) and len(body) >= lengths[0]


def ask(data, ends):
    """What comes until the connection ends, and whether it does. Where it need not, an answer is enough: of a proxy also
    what follows within a moment."""
    out = b""
    with socket.create_connection(("127.0.0.1", PORT)) as s:
        s.settimeout(20)
        try:
            s.sendall(data)
            while not is_whole(out) or ends or not DIRECT:
                if is_whole(out) and not DIRECT:
                    s.settimeout(0.2)
                part = s.recv(65536)
                if not part:
                    return out, True
                out += part
        except TimeoutError:
            pass
        except OSError:
            return out, True
    return out, False


def judge(name, data, statuses, ends):
    out, closed = ask(data, ends)
    got = [int(line.split()[1]) for line in out.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    if b'"object":"list"' in out:
        return "the rest of it was answered as another request"
    if not DIRECT:
        return "" if got or closed else "no answer"
    if name in OF_LIBRARY:
        got = got[:1]
    if len(got) != 1 or got[0] not in statuses:
        return f"{got}, expected one of {statuses}: {out[-200:]!r}"
    return "the connection goes on" if ends and not closed else ""


with ThreadPoolExecutor(8) as pool:
    results = list(pool.map(lambda case: judge(*case), CASES))
for case, why in zip(CASES, results):
    print(f"FAIL {case[0]}: {why}" if why else f"pass {case[0]}", flush=True)
