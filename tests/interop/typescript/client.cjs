// Uses a server with several clients, and prints their reports as a JSON array.
// Arguments: the options of the clients, then the command of the server, or a URL for each client.
const { Client } = require('@modelcontextprotocol/client');
const { targetOf, transportTo } = require('./transports.cjs');

async function use(options, target) {
    const client = new Client({ name: 'typescript', version: '2.4.0' }, options);
    await client.connect(transportTo(target));
    const call = async (name, given = {}, settings = {}) => {
        const result = await client.callTool({ name, arguments: given }, settings);
        return [result.isError ?? false, result.content[0].text];
    };
    const progress = [];
    // The client drops progress that arrives together with the result, so the result is delayed.
    const onprogress = async (step) => {
        progress.push([step.progress, step.total, step.message ?? null]);
        if (progress.length === 3) await call('go_on');
    };
    const refused = (promise) => promise.then(() => null, (error) => error.code);
    const report = {
        version: client.getNegotiatedProtocolVersion(),
        server: client.getServerVersion(),
        instructions: client.getInstructions(),
        tools: (await client.listTools()).tools.map((tool) => tool.name),
        resources: (await client.listResources()).resources.map((resource) => resource.uri),
        prompts: (await client.listPrompts()).prompts.map((prompt) => prompt.name),
        echo: await call('echo', { text: 'Grüße, 世界 🌍' }),
        add: await call('add', { a: 2, b: 40 }),
        count: await call('count_and_hold', { to: 3 }, { onprogress }),
        progress,
        fail: (await call('fail'))[0],
        wrong: (await call('add', { a: 'many' }))[0],
        unknown: await refused(call('nothing')),
        pixel: (await client.readResource({ uri: 'memo://pixel' })).contents[0].blob,
        prompt: (await client.getPrompt({ name: 'greet', arguments: { name: 'Ada' } })).messages[0].content.text,
        waited: await refused(call('wait', {}, { timeout: 200 })),
        stopped: await call('was_stopped'),
        big: (await call('big', { size: 1000000 }))[1].length
    };
    await client.close();
    return report;
}

// All clients at once, because starting the servers takes longer than using them.
async function main([options, ...server]) {
    const reports = await Promise.all(JSON.parse(options).map((one, index) => use(one, targetOf(server, index))));
    process.stdout.write(JSON.stringify(reports));
}

main(process.argv.slice(2)).catch((error) => { console.error(error); process.exit(1); });
