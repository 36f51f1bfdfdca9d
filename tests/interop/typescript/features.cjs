// Uses a server with requests, notifications and changes with several clients, and prints their
// reports as a JSON array. Arguments: the options of the clients, then the command of the server,
// or a URL for each client.
const { Client, LOG_LEVEL_META_KEY } = require('@modelcontextprotocol/client');
const { targetOf, transportTo } = require('./transports.cjs');
const { z } = require('zod');

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };
const CHANGES = ['tools/list_changed', 'prompts/list_changed', 'resources/list_changed', 'resources/updated'];

async function connected(options, target) {
    const client = new Client({ name: 'typescript', version: '2.4.0' }, options);
    await client.connect(transportTo(target));
    return client;
}

const caller = (client) => async (name, given = {}, settings = {}, _meta = undefined) => {
    const result = await client.callTool({ name, arguments: given, _meta }, settings);
    return [result.isError ?? false, result.content[0].text];
};

const refused = (promise) => promise.then(() => null, (error) => [error.code, error.data ?? null]);

function answer(client, asked) {
    client.setRequestHandler('elicitation/create', async ({ params }) => {
        asked.push(params);
        const accepted = params.message === 'accept' && params.mode !== 'url';
        return { action: params.message, ...(accepted && { content: { name: 'Ada', age: 36 } }) };
    });
    client.setRequestHandler('sampling/createMessage', async ({ params }) => {
        asked.push(params);
        return { role: 'assistant', model: 'small', content: { type: 'text', text: 'Not much.' }, stopReason: 'endTurn' };
    });
    client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///a', name: 'a' }, { uri: 'file:///b' }] }));
}

// The change notifications, and a function that waits for the expected number of them.
function listen(client) {
    const told = [];
    let look = () => {};
    for (const change of CHANGES) {
        client.setNotificationHandler(`notifications/${change}`, ({ params }) => {
            told.push(params?.uri ?? change);
            look();
        });
    }
    const until = (count) => new Promise((resolve) => {
        look = () => { if (told.length >= count) resolve([...told].sort()); };
        look();
    });
    return until;
}

async function offers(client, call) {
    const template = { type: 'ref/resource', uri: 'memo://notes/{number}' };
    const complete = async (ref, name, value, known) => (await client.complete(
        { ref, argument: { name, value }, ...(known && { context: { arguments: known } }) })).completion.values;
    const { tools } = await client.listTools();
    const tool = tools.find(({ name }) => name === 'weather');
    const read = async (uri) => (await client.readResource({ uri })).contents[0].text;
    return {
        tools: tools.length,
        page: (await client.request({ method: 'tools/list' })).tools.length,
        templates: (await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate),
        note: (await client.readResource({ uri: 'memo://notes/2' })).contents,
        kept: [await read('memo://kept'), await read('memo://kept')],
        numbers: await complete(template, 'number', '', undefined),
        dishes: await complete({ type: 'ref/prompt', name: 'order' }, 'dish', 'so', undefined),
        drinks: await complete({ type: 'ref/prompt', name: 'order' }, 'drink', 'w', { dish: 'soup' }),
        outputSchema: tool.outputSchema ?? null,
        weather: (await client.callTool({ name: 'weather', arguments: { city: 'Rome' } })).structuredContent ?? null,
        noResource: await refused(client.readResource({ uri: 'memo://nothing' })),
        noPrompt: await refused(client.getPrompt({ name: 'nothing' })),
        noArgument: await refused(client.getPrompt({ name: 'order', arguments: { dish: 'soup' } })),
        noMethod: await refused(client.request({ method: 'no/such' }, z.looseObject({}))),
        noTool: await refused(call('nothing'))
    };
}

async function questions(client, call, asked) {
    const attempt = (promise) => promise.catch((error) => [error.code]);
    const seen = {};
    for (const action of ['accept', 'decline', 'cancel']) {
        seen[`form ${action}`] = await attempt(call('ask_form', { message: action }));
    }
    for (const action of ['accept', 'decline']) {
        seen[`page ${action}`] = await attempt(call('ask_page', { message: action }));
    }
    seen.model = await call('ask_model');
    seen.roots = await call('ask_roots');
    seen.asked = asked.splice(0);
    seen.twice = await attempt(call('ask_twice'));
    seen.letter = await attempt(client.getPrompt({ name: 'letter' }).then((got) => got.messages[0].content.text));
    seen.secret = await attempt(client.readResource({ uri: 'memo://secret' }).then((got) => got.contents[0].text));
    return seen;
}

// The log level is set once per session, or in each stateless request.
async function logs(client, call, stateless) {
    const seen = {};
    let heard = [];
    client.setNotificationHandler('notifications/message', ({ params }) => { heard.push([params.level, params.logger, params.data]); });
    seen.unasked = await call('chatter').then(() => heard.map(([level]) => level));
    for (const level of ['debug', 'warning']) {
        heard = [];
        if (!stateless) await client.setLoggingLevel(level);
        await call('chatter', {}, {}, stateless ? { [LOG_LEVEL_META_KEY]: level } : undefined);
        seen[level] = heard;
    }
    return seen;
}

async function changes(client, call, stateless) {
    const until = listen(client);
    const uri = 'memo://notes/1';
    const seen = {};
    if (stateless) {
        const subscription = await client.listen({ resourceSubscriptions: [uri] });
        seen.honored = subscription.honoredFilter;
        await call('write', { number: 1, text: 'cheese' });
        seen.updated = await until(1);
        await subscription.close();
        await client.listen({ toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true });
    } else {
        await client.subscribeResource({ uri });
        await call('write', { number: 1, text: 'cheese' });
        seen.updated = await until(1);
        await client.unsubscribeResource({ uri });
    }
    seen.now = (await client.readResource({ uri })).contents[0].text;
    await call('write', { number: 1, text: 'nobody is told' });
    await call('grow');
    seen.grown = await until(4);
    seen.tool = await call('grown');
    seen.listed = [
        (await client.listTools()).tools.some(({ name }) => name === 'grown'),
        (await client.listPrompts()).prompts.some(({ name }) => name === 'grown'),
        (await client.listResources()).resources.some(({ name }) => name === 'grown')
    ];
    return seen;
}

async function cancelled(call) {
    const control = new AbortController();
    const waiting = call('wait', {}, { signal: control.signal, onprogress: () => control.abort('enough') });
    const outcome = await waiting.then(() => 'answered', () => 'given up');
    return [outcome, (await call('was_stopped'))[1]];
}

async function use(options, target) {
    const asked = [];
    const client = await connected({ capabilities, ...options }, target);
    const call = caller(client);
    const stateless = client.getProtocolEra() === 'modern';
    answer(client, asked);
    const report = {
        version: client.getNegotiatedProtocolVersion(),
        offers: await offers(client, call),
        questions: await questions(client, call, asked),
        logs: await logs(client, call, stateless),
        changes: await changes(client, call, stateless),
        cancelled: await cancelled(call),
        alive: stateless ? (await client.discover()).supportedVersions.length > 0 : await client.ping()
    };
    if (!stateless) await client.sendRootsListChanged();
    await client.close();

    const shy = await connected(options, target);
    report.shy = await caller(shy)('ask_form', { message: 'accept' }).catch((error) => [error.code, error.data]);
    await shy.close();
    return report;
}

// All clients at once, because starting the servers takes longer than using them.
async function main([options, ...server]) {
    const reports = await Promise.all(JSON.parse(options).map((one, index) => use(one, targetOf(server, index))));
    process.stdout.write(JSON.stringify(reports));
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
