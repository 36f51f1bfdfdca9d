// A client that executes commands, one per line on stdin: {id, what, ...}. It writes the outcomes
// {id, done} or {id, failed} to stdout, and {heard} or {asked} for messages of the server.
// Arguments: the era, then the command of the server, or its URL.
const { Client, LOG_LEVEL_META_KEY } = require('@modelcontextprotocol/client');
const readline = require('node:readline');
const { transportTo } = require('./transports.cjs');

const CHANGES = ['tools/list_changed', 'prompts/list_changed', 'resources/list_changed', 'resources/updated'];
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

function listen(client) {
    client.setRequestHandler('elicitation/create', async ({ params }) => {
        say({ asked: 'elicitation/create' });
        return { action: 'accept', content: { name: 'Ada', age: 36 } };
    });
    client.setRequestHandler('sampling/createMessage', async () => {
        say({ asked: 'sampling/createMessage' });
        return { role: 'assistant', model: 'small', content: { type: 'text', text: 'four' }, stopReason: 'endTurn' };
    });
    client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///home/ada/project' }] }));
    client.setNotificationHandler('notifications/message', ({ params }) => say({ heard: ['log', params.level] }));
    for (const change of CHANGES) {
        client.setNotificationHandler(`notifications/${change}`, ({ params }) => say({ heard: [change, params?.uri ?? null] }));
    }
}

const textOf = (result) => [result.isError ?? false, result.content.map((block) => block.text ?? '').join('')];

const deeds = (client, stateless) => ({
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    call: async ({ name, args }) => {
        const _meta = stateless ? { [LOG_LEVEL_META_KEY]: 'debug' } : undefined;
        return textOf(await client.callTool({ name, arguments: args, _meta }));
    },
    // The client drops progress that arrives together with the result, so the last step may be
    // missing; and it reports its own rounds as progress if the server requests input meanwhile.
    progress: async ({ name, args }) => {
        const steps = [];
        const onprogress = ({ progress, message }) => message?.startsWith('Fulfilling') || steps.push(progress);
        const result = await client.callTool({ name, arguments: args }, { onprogress });
        return [textOf(result)[1], steps];
    },
    read: async ({ uri }) => (await client.readResource({ uri })).contents[0].text,
    giveUp: async ({ name, args, seconds }) => {
        const control = new AbortController();
        const begun = seconds ? setTimeout(() => control.abort('enough'), seconds * 1000) : null;
        const onprogress = () => control.abort('enough');
        const waiting = client.callTool({ name, arguments: args }, { signal: control.signal, onprogress });
        const outcome = await waiting.then(() => 'answered', () => 'given up');
        clearTimeout(begun);
        return outcome;
    },
    follow: async ({ uri }) => {
        if (!stateless) return uri ? client.subscribeResource({ uri }) : null;
        const lists = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
        await client.listen({ ...lists, ...(uri && { resourceSubscriptions: [uri] }) });
        return null;
    }
});

async function main([era, ...target]) {
    const stateless = era === 'stateless';
    const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };
    const options = stateless ? { versionNegotiation: { mode: 'auto' } } : {};
    const client = new Client({ name: 'typescript', version: '2.4.0' }, { capabilities, ...options });
    listen(client);
    await client.connect(transportTo(target));
    const server = client.getServerVersion();
    if (!stateless) await client.setLoggingLevel('debug').catch(() => {});
    say({ id: 0, done: [client.getNegotiatedProtocolVersion(), server.name] });
    const does = deeds(client, stateless);
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const { id, what, ...given } = JSON.parse(line);
        does[what](given).then((done) => say({ id, done }), (error) => say({ id, failed: [error.code ?? 0, error.message] }));
    }
    await client.close();
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
