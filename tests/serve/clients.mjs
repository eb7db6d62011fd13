// The server of examples/serve as stock clients use it: OpenAI's, the AI SDK and LangChain. Each row of the table in its
// README by a call that succeeds, or raises what it should. Prints a line for each, as tests do.
//
//     node clients.mjs URL KEY        the engine of the tests repeats its prompt
import OpenAI from 'openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import { ChatOpenAI } from '@langchain/openai';

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = 'qwen3-tiny';
const messages = [{ role: 'user', content: 'Hello, you' }];
const chat = (more) => client.chat.completions.create({ model, messages, max_tokens: 8, ...more });
const text = (more) => client.completions.create({ model, prompt: 'ab', max_tokens: 4, ...more });

function equal(got, wanted) {
    const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
    if (a !== b) throw new Error(`${a}, expected ${b}`);
}
async function test(name, run) {
    try {
        await run();
        console.log(`pass ${name}`);
    } catch (error) {
        console.log(`FAIL ${name}: ${String(error?.stack ?? error).replace(/\s+/g, ' ').slice(0, 300)}`);
    }
}
async function raises(promise, status, fields) {
    let error;
    try {
        await promise;
    } catch (e) {
        error = e;
    }
    if (!error) throw new Error(`nothing was raised, expected ${status}`);
    equal({ status: error.status, ...Object.fromEntries(Object.keys(fields).map((k) => [k, error[k]])) }, { status, ...fields });
}
// What an answer consists of, without its values.
function shape(value) {
    if (Array.isArray(value)) return value.length ? [shape(value[0])] : [];
    if (value === null || typeof value !== 'object') return value === null ? 'null' : typeof value;
    return Object.fromEntries(Object.keys(value).sort().map((k) => [k, shape(value[k])]));
}
const usage = { completion_tokens: 'number', prompt_tokens: 'number', prompt_tokens_details: { cached_tokens: 'number' }, total_tokens: 'number' };
const ends = { finish_reason: 'string', index: 'number', logprobs: 'null', token_ids: ['number'] };
const head = { created: 'number', id: 'string', model: 'string', object: 'string' };
const sorted = (o) => Object.fromEntries(Object.keys(o).sort().map((k) => [k, o[k]]));

// ---- OpenAI's client

await test('openai/models', async () => {
    equal((await client.models.list()).data.map((m) => m.id), [model]);
    equal((await client.models.retrieve(model)).id, model);
    await raises(client.models.retrieve('other'), 404, { code: 'model_not_found', type: 'invalid_request_error' });
});
await test('openai/shape_of_chat', async () => {
    equal(shape(await chat()), sorted({ ...head, choices: [sorted({ ...ends, message: { content: 'string', role: 'string' } })], usage }));
});
await test('openai/shape_of_completion', async () => {
    equal(shape(await text()), sorted({ ...head, choices: [sorted({ ...ends, text: 'string' })], usage }));
});
await test('openai/stream', async () => {
    await chat(); // whose pages both of the following find
    const whole = await chat();
    let content = '', finish = null, used = null;
    for await (const part of await chat({ stream: true, stream_options: { include_usage: true } })) {
        content += part.choices[0]?.delta.content ?? '';
        finish = part.choices[0]?.finish_reason ?? finish;
        used = part.usage ?? used;
    }
    equal([content, finish, used], [whole.choices[0].message.content, 'length', whole.usage]);
});
await test('openai/cached_tokens', async () => {
    const prompt = Array.from({ length: 40 }, (_, i) => i), found = [];
    for (const last of [40, 40, 41]) found.push((await text({ prompt: [...prompt.slice(0, 39), last] })).usage.prompt_tokens_details.cached_tokens);
    equal(found, [0, 32, 32]);
});
await test('openai/stream_helper', async () => {
    const stream = client.chat.completions.stream({ model, messages, max_tokens: 8, n: 2 });
    equal((await stream.finalChatCompletion()).choices.length, 2);
});

// Fields that ask for nothing, or that no answer depends on; null is the same.
const neutral = {
    stop: [null, []], temperature: [null, 0], top_p: [null, 1], n: [null, 1], stream: [null], stream_options: [null], max_tokens: [null, -1],
    max_completion_tokens: [null], seed: [null, 7], presence_penalty: [null, 0], frequency_penalty: [null, 0], logit_bias: [null, {}],
    logprobs: [null, false], top_logprobs: [null, 0], tools: [null, []], tool_choice: ['none', 'auto'], parallel_tool_calls: [false],
    response_format: [null, { type: 'text' }], user: ['u'], metadata: [{}], store: [null, false], service_tier: ['auto', 'default'],
    reasoning_effort: ['none', 'medium'], verbosity: ['medium'], modalities: [['text']], prompt_cache_key: ['k'], safety_identifier: ['s'],
    repetition_penalty: [1], top_k: [-1, 0], min_p: [0], chat_template_kwargs: [{ enable_thinking: false }], skip_special_tokens: [true],
    add_generation_prompt: [true], include_reasoning: [true, false], cache_prompt: [true], keep_alive: ['5m'], options: [{}], priority: [0],
    min_tokens: [0], best_of: [1], echo: [false], web_search_options: [null], audio: [null], prediction: [null], ignore_eos: [false],
    include_stop_str_in_output: [false], stop_token_ids: [[]], guided_json: [null], mirostat: [0], a_field_of_tomorrow: [1],
};
for (const [field, values] of Object.entries(neutral))
    await test(`openai/neutral/${field}`, async () => {
        const whole = await chat();
        for (const value of values) {
            const got = await chat({ [field]: value, max_tokens: field.startsWith('max_') ? value : 8 });
            if (!field.startsWith('max_') && field !== 'chat_template_kwargs' && field !== 'reasoning_effort')
                equal(got.choices[0].message.content, whole.choices[0].message.content);
        }
    });

// Fields that ask for what is not done.
const refused = {
    prompt_logprobs: 1, n_probs: 3,
    tool_choice: 'required', response_format: { type: 'json_object' },
    guided_regex: 'a+', guided_json: { type: 'object' }, best_of: 2, store: true, modalities: ['text', 'audio'],
    service_tier: 'flex', verbosity: 'high', add_generation_prompt: false, echo: true, mirostat: 2, audio: {}, prediction: {},
};
for (const [field, value] of Object.entries(refused))
    await test(`openai/refused/${field}`, () => raises(chat({ [field]: value }), 400, { param: field, code: 'unsupported_value' }));

// What changes logits. The engine of the tests adds the tokens so far to one that has a penalty.
await test('openai/logit_bias', async () => {
    equal((await text({ logit_bias: { 65: 100, 66: -100 } })).choices[0].token_ids, [65, 65, 65, 65]);
    await raises(chat({ logit_bias: { the: 1 } }), 400, { param: 'logit_bias.the' });
    await raises(chat({ logit_bias: { 5: 101 } }), 400, { param: 'logit_bias.5' });
});
for (const [field, value, most] of [['presence_penalty', 0.5, 2.5], ['frequency_penalty', 2, -3], ['repetition_penalty', 1.1, 0], ['repeat_penalty', 1.2, 0]])
    await test(`openai/${field}`, async () => {
        equal((await text({ prompt: [10, 20], [field]: value })).choices[0].token_ids, [10, 21, 12, 23]);
        await raises(chat({ [field]: most }), 400, { param: field });
    });
// The engine of the tests finds its token, and as many that follow it, likely by halves.
await test('openai/logprobs', async () => {
    const more = { logprobs: true, top_logprobs: 2, logit_bias: { 32: 100 }, max_tokens: 2 };
    const half = Math.fround(-0.6931472), quarter = Math.fround(2 * half);
    const a = { token: 'A', logprob: half, bytes: [65] }, b = { token: 'B', logprob: quarter, bytes: [66] };
    const content = Array(2).fill({ ...a, top_logprobs: [a, b] });
    equal((await chat(more)).choices[0].logprobs, { content, refusal: null });
    equal((await chat({ ...more, top_logprobs: 0 })).choices[0].logprobs.content[0], { ...a, top_logprobs: [] });
    const seen = [];
    for await (const part of await chat({ ...more, stream: true })) seen.push(...part.choices[0].logprobs?.content ?? []);
    equal(seen, content);
    // A byte of a character, and a control token.
    const bytes = async (token) => (await chat({ ...more, logit_bias: { [token]: 100 } })).choices[0].logprobs.content[0];
    const ids = (await (await fetch(`${url}/tokenize`, {
        method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ model, prompt: '\u{1f600}' }),
    })).json()).tokens;
    const joined = [];
    for (const id of ids) joined.push(...(await bytes(id)).bytes);
    equal(joined, [0xf0, 0x9f, 0x98, 0x80]);
    await raises(chat({ top_logprobs: 2 }), 400, { param: 'top_logprobs' });
    await raises(chat({ logprobs: true, top_logprobs: 21 }), 400, { param: 'top_logprobs' });
});
await test('openai/logprobs_of_completion', async () => {
    const half = Math.fround(-0.6931472), quarter = Math.fround(2 * half), prompt = [32, 33];
    equal((await text({ prompt, logprobs: 2, max_tokens: 2 })).choices[0].logprobs,
        { tokens: ['A', 'B'], token_logprobs: [half, half], top_logprobs: [{ B: quarter, A: half }, { C: quarter, B: half }], text_offset: [0, 1] });
    equal((await text({ prompt, logprobs: 0, max_tokens: 1 })).choices[0].logprobs,
        { tokens: ['A'], token_logprobs: [half], top_logprobs: null, text_offset: [0] });
    const offsets = [];
    for await (const part of await text({ prompt, logprobs: 1, stream: true })) offsets.push(...part.choices[0].logprobs?.text_offset ?? []);
    equal(offsets, [0, 1, 2, 3]);
    await raises(text({ logprobs: 1, echo: true }), 400, { param: 'logprobs', code: 'unsupported_value' });
});
await test('openai/min_tokens', async () => {
    const more = { prompt: [65, 66, 67], stop_token_ids: [66], include_stop_str_in_output: true, max_tokens: 9 };
    equal((await text(more)).choices[0].token_ids, [65, 66]);
    equal((await text({ ...more, min_tokens: 3 })).choices[0].token_ids, [65, 0, 67, 65, 66]);
    equal((await text({ prompt: 'ab', stop: 'a', min_tokens: 3, max_tokens: 9 })).choices[0].text, 'abab');
    await raises(chat({ min_tokens: 9 }), 400, { param: 'min_tokens' });
});

await test('openai/stop', async () => {
    const whole = (await text({ prompt: 'one END two ', max_tokens: 50 })).choices[0].text;
    equal([whole.startsWith('one END'), (await text({ prompt: 'one END two ', max_tokens: 50, stop: ['ND t', 'x', 'y', 'z'] })).choices[0].text],
        [true, 'one E']);
    let content = '';
    for await (const part of await text({ prompt: 'one END two ', max_tokens: 50, stop: 'ND t', stream: true })) content += part.choices[0].text;
    equal(content, 'one E');
});
await test('openai/prompts_n_echo', async () => {
    const got = await text({ prompt: ['ab', 'cd'], n: 2, echo: true, max_tokens: 2 });
    equal(got.choices.map((c) => [c.index, c.text]), [[0, 'abab'], [1, 'abab'], [2, 'cdcd'], [3, 'cdcd']]);
});
await test('openai/messages', async () => {
    await chat({
        messages: [
            { role: 'developer', content: 'Be brief.' },
            { role: 'user', name: 'ann', content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }] },
            { role: 'assistant', content: null, refusal: null, tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{}' } }] },
            { role: 'tool', tool_call_id: '1', content: '7' },
            { role: 'assistant', content: 'x', reasoning_content: 'y', annotations: [], audio: null },
            { role: 'user', content: 'c' },
        ],
    });
    await raises(chat({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:' } }] }] }), 400,
        { param: 'messages[0].content[0].type', code: 'unsupported_value' });
});
// The engine repeats its prompt, and so a call that is in it.
const tools = [{ type: 'function', function: { name: 'sum', description: 'adds', parameters: { type: 'object', properties: { a: { type: 'number' } } } } }];
const calling = [{ role: 'user', content: 'Go.\n<tool_call>\n{"name": "sum", "arguments": {"a": 1}}\n</tool_call>' }];
await test('openai/tools', async () => {
    const more = { tools, messages: calling, max_tokens: 600, stop: ['\nassistant'] };
    const got = (await chat(more)).choices[0];
    equal(got.message.tool_calls.map((c) => [c.type, c.function]).at(-1), ['function', { name: 'sum', arguments: '{"a": 1}' }]);
    equal([got.finish_reason, got.message.content.includes('name": "sum", "arguments'), got.message.content.includes('# Tools')],
        ['tool_calls', false, true]);
    const stream = client.chat.completions.stream({ model, ...more });
    const whole = (await stream.finalChatCompletion()).choices[0];
    equal(whole.message.tool_calls.map((c) => c.function), got.message.tool_calls.map((c) => c.function));
    equal([whole.finish_reason, whole.message.content], ['tool_calls', got.message.content]);
});
await test('openai/tools/none', async () => {
    const got = (await chat({ tools, tool_choice: 'none', messages: calling, max_tokens: 200 })).choices[0].message;
    equal([got.tool_calls, got.content.includes('# Tools'), got.content.includes('<tool_call>')], [undefined, false, true]);
});
await test('openai/context', () => raises(text({ prompt: Array(5000).fill(7) }), 400, { code: 'context_length_exceeded', param: 'prompt' }));
await test('openai/clamped', async () => equal((await text({ prompt: Array(4095).fill(7), max_tokens: 100000 })).usage.completion_tokens, 2));
await test('openai/other_model', () => raises(chat({ model: 'gpt-5' }), 404, { code: 'model_not_found', param: 'model' }));
await test('openai/embeddings', () => raises(client.embeddings.create({ model, input: 'a' }), 404, { code: 'unknown_url' }));
await test('openai/responses', () => raises(client.responses.create({ model, input: 'a' }), 404, { code: 'unknown_url' }));
await test('openai/wrong_key', () =>
    raises(new OpenAI({ baseURL, apiKey: 'wrong', maxRetries: 0 }).models.list(), 401, { code: 'invalid_api_key' }));
await test('openai/stream_that_breaks', async () => {
    const seen = [];
    let raised = null;
    try {
        for await (const part of await text({ prompt: [65, 66, 1020], stream: true })) seen.push(...part.choices[0].token_ids);
    } catch (error) {
        raised = error.code;
    }
    equal([seen, raised], [[65, 66], 'engine_failed']);
});
await test('openai/request_id', async () => {
    const { data, response } = await client.chat.completions
        .create({ model, messages, max_tokens: 1 }, { headers: { 'X-Request-Id': 'mine-1' } }).withResponse();
    equal([response.headers.get('x-request-id'), data._request_id], ['mine-1', 'mine-1']);
});
await test('openai/abort', async () => {
    const stream = await text({ prompt: 'ab', max_tokens: 4000, stream: true });
    for await (const part of stream) {
        if (part) stream.controller.abort();
    }
    equal((await text()).choices[0].text, 'abab');
});

// ---- the AI SDK

const provider = createOpenAICompatible({ name: 'fleet', baseURL, apiKey, includeUsage: true });
const quiet = { maxRetries: 0, maxOutputTokens: 8 };
await test('ai/generate', async () => {
    const got = await generateText({ ...quiet, model: provider(model), system: 'Be brief.', prompt: 'Hi', temperature: 0, seed: 1 });
    equal([got.finishReason, got.usage.outputTokens, got.text.length > 0], ['length', 8, true]);
});
await test('ai/stream', async () => {
    const result = streamText({ ...quiet, model: provider(model), messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }] });
    let content = '';
    for await (const part of result.textStream) content += part;
    equal([content.length > 0, await result.finishReason, (await result.usage).outputTokens], [true, 'length', 8]);
});
await test('ai/stop', async () => {
    const got = await generateText({ ...quiet, maxOutputTokens: 60, model: provider(model), prompt: 'one END two', stopSequences: ['END'] });
    equal([got.finishReason, got.text.includes('END'), got.text.includes('one ')], ['stop', false, true]);
});
await test('ai/refused', async () => {
    let message = '';
    try {
        await generateText({ ...quiet, model: provider(model), prompt: 'Hi', presencePenalty: 2.5 });
    } catch (error) {
        message = error.message;
    }
    equal(message.startsWith('presence_penalty: must be a number from -2 to 2'), true);
});

// ---- LangChain

const lang = (more) => new ChatOpenAI({ model, apiKey, maxTokens: 8, maxRetries: 0, configuration: { baseURL }, ...more });
await test('langchain/invoke', async () => {
    const got = await lang({ temperature: 0 }).invoke([['system', 'Be brief.'], ['human', 'Hi']]);
    equal([got.content.length > 0, got.usage_metadata.output_tokens], [true, 8]);
});
await test('langchain/stream', async () => {
    let content = '';
    for await (const part of await lang().stream('Hi')) content += part.content;
    equal(content, (await lang().invoke('Hi')).content);
});
await test('langchain/batch', async () => equal((await lang().batch(['a', 'b', 'c'])).length, 3));
await test('langchain/stop', async () => {
    const got = await lang({ maxTokens: 60 }).invoke('one END two', { stop: ['END'] });
    equal([got.content.includes('END'), got.content.includes('one ')], [false, true]);
});
await test('langchain/n', async () => equal((await lang({ n: 2 }).generate([[['human', 'Hi']]])).generations[0].length, 2));
