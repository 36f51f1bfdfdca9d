// A small server made with the TypeScript SDK. It speaks the era its client opens with.
const { McpServer } = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { z } = require('zod');

const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });

let stopped;
const wasStopped = new Promise((resolve) => { stopped = resolve; });

serveStdio(() => {
    const server = new McpServer({ name: 'typescript', version: '2.4.0' });
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
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
        stopped();
        return text('never');
    });
    server.registerTool('was_stopped', {}, async () => { await wasStopped; return text('stopped'); });
    return server;
});
