// Uses the reference server "everything", and prints the received results, errors, requests and
// notifications as a JSON array, in order. Arguments: the server's command.
const { Client } = require('@modelcontextprotocol/client');
const { transportTo } = require('./transports.cjs');

const capabilities = { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } };
const WATCHED = 'demo://resource/dynamic/text/1';

// The received notifications, and a function that waits for them.
function listen(client) {
    const told = [];
    let look = () => {};
    const hear = (what) => { told.push(what); look(); };
    client.setNotificationHandler('notifications/message', ({ params }) => hear(`log ${params.level} ${params.data}`));
    client.setNotificationHandler('notifications/resources/updated', ({ params }) => hear(`updated ${params.uri}`));
    client.setNotificationHandler('notifications/resources/list_changed', () => hear('more resources'));
    const until = (words) => new Promise((resolve) => {
        look = () => { if (told.some((one) => one.includes(words))) resolve(words); };
        look();
    });
    return { told, until };
}

async function visit(client, seen) {
    const { told, until } = listen(client);
    client.setRequestHandler('elicitation/create', async ({ params }) => {
        seen.push(['asked', params]);
        return { action: 'accept', content: { name: 'Ada', integer: 7 } };
    });
    client.setRequestHandler('sampling/createMessage', async ({ params }) => {
        seen.push(['asked', params]);
        return { role: 'assistant', model: 'small', content: { type: 'text', text: 'four' }, stopReason: 'endTurn' };
    });
    client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///home/ada' }] }));
    const see = async (name, promise) => seen.push([name, await promise.catch((error) => [error.code, error.message])]);
    const call = (name, given = {}, settings = {}) => see(name, client.callTool({ name, arguments: given }, settings));

    await client.connect(transportTo(process.argv.slice(2)));
    seen.push([client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]);
    await until('root(s) received');
    await see('tools', client.listTools());
    await see('resources', client.listResources());
    await see('templates', client.listResourceTemplates());
    await see('prompts', client.listPrompts());
    await call('echo', { message: 'Grüße, 世界 🌍' });
    await call('get-sum', { a: 'many' });
    await call('nothing');
    await call('get-structured-content', { location: 'Chicago' });
    await call('get-tiny-image');
    await call('trigger-elicitation-request');
    await call('trigger-sampling-request', { prompt: 'why', maxTokens: 10 });
    await call('get-roots-list');
    // The first step arrives well before the result; a later one may arrive with it and is then dropped.
    let first = null;
    const onprogress = (step) => { first ??= step; };
    await call('trigger-long-running-operation', { duration: 0.2, steps: 2 }, { onprogress });
    seen.push(['progress', first]);
    await see('prompt', client.getPrompt({ name: 'args-prompt', arguments: { city: 'Rome' } }));
    await see('no prompt', client.getPrompt({ name: 'nothing' }));
    await see('complete', client.complete(
        { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'S' } }));
    await see('no resource', client.readResource({ uri: 'demo://nothing' }));
    await see('level', client.setLoggingLevel('debug'));
    await see('subscribe', client.subscribeResource({ uri: WATCHED }));
    await call('toggle-subscriber-updates');
    await until(`updated ${WATCHED}`);
    await call('toggle-subscriber-updates');
    await see('unsubscribe', client.unsubscribeResource({ uri: WATCHED }));
    const control = new AbortController();
    const enough = { signal: control.signal, onprogress: () => control.abort('enough') };
    await call('trigger-long-running-operation', { duration: 0.5, steps: 5 }, enough);
    await call('gzip-file-as-resource', { name: 'note.gz', data: 'data:text/plain,hello' });
    await until('more resources');
    await see('ping', client.ping());
    seen.push(told);
    await client.close();
}

const seen = [];
visit(new Client({ name: 'typescript', version: '2.4.0' }, { capabilities }), seen)
    .then(() => process.stdout.write(JSON.stringify(seen)))
    .catch((error) => { console.error(error); process.exit(1); });
