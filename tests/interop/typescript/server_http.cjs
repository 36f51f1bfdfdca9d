// The server of server.cjs over every HTTP transport. The URL is printed to stdout, and the program
// ends when its stdin is closed.
const { randomUUID } = require('node:crypto');
const { createServer } = require('node:http');
const { Readable, pipeline } = require('node:stream');
const { WebStandardStreamableHTTPServerTransport, createMcpHandler, isLegacyRequest } = require('@modelcontextprotocol/server');
const { z } = require('zod');
const { build } = require('./server.cjs');

const text = (value) => ({ content: [{ type: 'text', text: value }] });

// In the stateless era each request has its own server object, so the handler sends changes.
function buildFor(way) {
    const server = build();
    server.registerTool('touch', { inputSchema: z.object({ uri: z.string() }) }, async ({ uri }) => {
        way.handler.notify.resourceUpdated(uri);
        return text('touched');
    });
    server.registerTool('swell', {}, async () => {
        for (const kind of ['tools', 'prompts', 'resources']) way.handler.notify[`${kind}Changed`]();
        return text('swollen');
    });
    return server;
}

// The handshake era with sessions.
function sessionful(responseMode) {
    const sessions = new Map();
    const way = {
        async serve(request) {
            if (!(await isLegacyRequest(request))) return way.handler.fetch(request);
            let transport = sessions.get(request.headers.get('mcp-session-id'));
            if (!transport) {
                transport = new WebStandardStreamableHTTPServerTransport({
                    sessionIdGenerator: randomUUID,
                    enableJsonResponse: responseMode === 'json',
                    onsessioninitialized: (id) => { sessions.set(id, transport); },
                    onsessionclosed: (id) => { sessions.delete(id); }
                });
                await buildFor(way).connect(transport);
            }
            return transport.handleRequest(request);
        }
    };
    way.handler = createMcpHandler(() => buildFor(way), { legacy: 'reject', responseMode });
    return way;
}

// The handshake era without sessions.
function stateless() {
    const way = { serve: (request) => way.handler.fetch(request) };
    way.handler = createMcpHandler(() => buildFor(way));
    return way;
}

const ways = { events: sessionful('sse'), json: sessionful('json'), stateless: stateless() };

async function answer(req, res) {
    const gone = new AbortController();
    res.on('close', () => gone.abort());
    const body = req.method === 'POST' ? Buffer.concat(await req.toArray()) : undefined;
    const url = new URL(req.url, `http://${req.headers.host}`);
    const request = new Request(url, { method: req.method, headers: req.headers, body, signal: gone.signal });
    const response = await ways[url.pathname.slice(1)].serve(request);
    res.writeHead(response.status, Object.fromEntries(response.headers));
    res.flushHeaders();
    if (response.body) pipeline(Readable.fromWeb(response.body), res, () => {});
    else res.end();
}

const listening = createServer((req, res) => { answer(req, res).catch((error) => { console.error(error); res.destroy(); }); });
listening.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listening.address().port}`));
process.stdin.on('end', () => process.exit(0)).resume();
