-- Requests of wrk, for tests/serve/load.sh: every fourth is proactive, every third streamed, every ninth is one that has to be
-- refused. Counts the answers that are neither 200 nor, where that is due, 400 and 429.
count, odd = 0, 0 -- of a thread; wrk reads globals
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function request()
    count = count + 1
    local body = string.format(
        '{"prompt":[%d,%d,7],"max_tokens":%d,"priority":"%s","stream":%s}',
        count % 200, count % 77, 1 + count % 24, count % 4 == 0 and "proactive" or "reactive",
        count % 3 == 0 and "true" or "false")
    if count % 9 == 0 then body = body:sub(1, #body - 8) end
    return wrk.format("POST", "/v1/completions", {["Content-Type"] = "application/json"}, body)
end

function response(status)
    if status ~= 200 and status ~= 400 and status ~= 429 then odd = odd + 1 end
end

function done(summary, latency)
    local all = 0
    for _, thread in ipairs(threads) do all = all + thread:get("odd") end
    io.write(string.format("| wrk: %d answers, %.0f a second | p50 %.2f ms | p99 %.2f ms | longest %.2f ms |\n",
        summary.requests, summary.requests / (summary.duration / 1e6), latency:percentile(50) / 1e3,
        latency:percentile(99) / 1e3, latency.max / 1e3))
    io.write(string.format("wrong %d\n", all + summary.errors.connect + summary.errors.read +
        summary.errors.write + summary.errors.timeout))
end
