// A server of the TypeScript SDK with all features. It uses the era with which its client opens.
const { McpServer, ResourceTemplate, completable, inputRequired } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const PIXEL = 'iVBORw0KGgoAAAANSUhEUg==';
const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });
const person = { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name'] };
const form = (message) => inputRequired.elicit({ message, requestedSchema: person });
const model = inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: 'What is up?' } }], maxTokens: 7 });

// Resolves once no `wait` call is in progress.
let waiting = 0;
let stopped;
let wasStopped = Promise.resolve();

function addTools(server) {
    server.registerTool('echo', { inputSchema: z.object({ text: z.string() }) }, async (given) => text(given.text));
    server.registerTool('add', { description: 'Add two numbers.', inputSchema: z.object({ a: z.number(), b: z.number() }) },
        async ({ a, b }) => text(a + b));
    server.registerTool('count', { inputSchema: z.object({ to: z.number() }) }, async ({ to }, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (let progress = 1; progress <= to; progress++) {
            const params = { progressToken, progress, total: to, message: `step ${progress}` };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
        }
        return text(`counted to ${to}`);
    });
    server.registerTool('fail', {}, async () => { throw new Error('it broke'); });
    server.registerTool('wait', {}, async (ctx) => {
        const { signal } = ctx.mcpReq;
        if (waiting++ === 0) wasStopped = new Promise((resolve) => { stopped = resolve; });
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
        if (--waiting === 0) stopped();
        return text('never');
    });
    server.registerTool('was_stopped', {}, async () => { await wasStopped; return text('stopped'); });
    server.registerTool('blocks', {}, async () => ({
        content: [
            { type: 'text', text: 'grüße', annotations: { audience: ['user'], priority: 0.5 } },
            { type: 'image', data: PIXEL, mimeType: 'image/png' },
            { type: 'audio', data: PIXEL, mimeType: 'audio/wav' },
            { type: 'resource_link', uri: 'memo://pixel', name: 'pixel' },
            { type: 'resource', resource: { uri: 'memo://note', text: 'embedded' } }
        ]
    }));
    const weather = z.object({ city: z.string(), degrees: z.number() });
    server.registerTool('weather', { inputSchema: z.object({ city: z.string() }), outputSchema: weather }, async ({ city }) => {
        const structuredContent = { city, degrees: 21.5 };
        return { ...text(JSON.stringify(structuredContent)), structuredContent };
    });
    server.registerTool('chatter', {}, async (ctx) => {
        for (const level of ['debug', 'info', 'warning', 'error']) await ctx.mcpReq.log(level, { said: level }, 'chatter');
        return text('logged');
    });
}

// In the handshake era the SDK converts these to requests.
function addQuestions(server) {
    const answers = (ctx) => ctx.mcpReq.inputResponses;
    const asking = (name, request) => server.registerTool(name, { inputSchema: z.object({ message: z.string().optional() }) },
        async ({ message }, ctx) => answers(ctx)
            ? text(JSON.stringify(answers(ctx).it))
            : inputRequired({ inputRequests: { it: request(message) } }));
    asking('ask_form', form);
    asking('ask_page', (message) => inputRequired.elicitUrl({ message, url: 'https://example.com/login' }));
    asking('ask_model', () => model);
    asking('ask_roots', () => inputRequired.listRoots());
    server.registerTool('ask_twice', {}, async (ctx) => {
        const state = ctx.mcpReq.requestState();
        if (!state) return inputRequired({ inputRequests: { model, roots: inputRequired.listRoots() }, requestState: 'half way' });
        if (state === 'half way') {
            const { model: said, roots } = answers(ctx);
            const next = JSON.stringify([said.content.text, roots.roots.length]);
            return inputRequired({ inputRequests: { who: form('accept') }, requestState: next });
        }
        return text(JSON.stringify([...JSON.parse(state), answers(ctx).who.content.name]));
    });
    server.registerPrompt('letter', {}, async (ctx) => answers(ctx)
        ? { messages: [{ role: 'user', content: { type: 'text', text: `Sincerely, ${answers(ctx).who.content.name}` } }] }
        : inputRequired({ inputRequests: { who: form('accept') } }));
}

function addResourcesAndPrompts(server) {
    const notes = { 1: 'milk', 2: 'bread' };
    const subscribed = new Set();
    server.registerResource('pixel', 'memo://pixel', { mimeType: 'image/png' },
        async (uri) => ({ contents: [{ uri: uri.href, mimeType: 'image/png', blob: PIXEL }] }));
    let reads = 0;
    server.registerResource('kept', 'memo://kept', { cacheHint: { ttlMs: 60000, cacheScope: 'private' } },
        async (uri) => ({ contents: [{ uri: uri.href, text: `read ${++reads}` }] }));
    const complete = { number: (typed) => Object.keys(notes).filter((number) => number.startsWith(typed)) };
    server.registerResource('note', new ResourceTemplate('memo://notes/{number}', { list: undefined, complete }), {},
        async (uri, { number }) => ({ contents: [{ uri: uri.href, text: notes[number] }] }));
    const argsSchema = z.object({
        dish: completable(z.string(), (typed) => ['soup', 'salad'].filter((dish) => dish.startsWith(typed))),
        drink: completable(z.string(), (typed, context) => context?.arguments?.dish === 'soup' ? ['water', 'wine'] : ['juice'])
    });
    server.registerPrompt('order', { argsSchema }, async ({ dish, drink }) => (
        { messages: [{ role: 'user', content: { type: 'text', text: `Bring me ${dish} and ${drink}.` } }] }));
    server.server.setRequestHandler('resources/subscribe', async ({ params }) => { subscribed.add(params.uri); return {}; });
    server.server.setRequestHandler('resources/unsubscribe', async ({ params }) => { subscribed.delete(params.uri); return {}; });
    server.registerTool('write', { inputSchema: z.object({ number: z.number(), text: z.string() }) }, async (given, ctx) => {
        notes[given.number] = given.text;
        const uri = `memo://notes/${given.number}`;
        // The server tracks subscriptions in the handshake era, and the SDK in the stateless one.
        if (ctx.mcpReq.envelope || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
        return text('written');
    });
    server.registerTool('grow', {}, async () => {
        server.registerTool('grown', {}, async () => text('new'));
        server.registerPrompt('grown', {}, async () => ({ messages: [] }));
        server.registerResource('grown', 'memo://grown', {}, async () => ({ contents: [] }));
        return text('grown');
    });
}

function build() {
    const capabilities = { logging: {}, resources: { subscribe: true } };
    const server = new McpServer({ name: 'typescript', version: '2.4.0' }, { capabilities, instructions: 'Say hello first.' });
    addTools(server);
    addQuestions(server);
    addResourcesAndPrompts(server);
    return server;
}

module.exports = { build };
if (require.main === module) serveStdio(build);
