// `echo` and `add` with the TypeScript SDK.
// `connect(new StdioServerTransport())` serves the handshake era only and is the faster of the two
// ways; with the argument `stateless` the SDK's `serveStdio` picks the era from the first message.

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

function build() {
  const server = new McpServer({ name: 'bench', version: '1.0.0' });
  server.registerTool(
    'echo',
    { description: 'Say it again.', inputSchema: z.object({ text: z.string() }) },
    async ({ text }) => ({ content: [{ type: 'text', text }] }),
  );
  server.registerTool(
    'add',
    { description: 'Add two numbers.', inputSchema: z.object({ a: z.int(), b: z.int() }) },
    async ({ a, b }) => ({ content: [{ type: 'text', text: String(a + b) }] }),
  );
  return server;
}

if (process.argv[2] === 'stateless') {
  serveStdio(build);
} else {
  await build().connect(new StdioServerTransport());
}
