// `echo`, `add`, `order` and `describe` with the TypeScript SDK.
// `connect(new StdioServerTransport())` serves the handshake era only and is the faster of the two
// ways; with the argument `stateless` the SDK's `serveStdio` picks the era from the first message.

import { fileURLToPath } from 'node:url';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const Item = z.object({
  name: z.string(),
  quantity: z.int(),
  price: z.number(),
  labels: z.array(z.string()),
});

// A text or number, sent twice: as a text, and as structured content.
export function wrapped(result) {
  return { content: [{ type: 'text', text: String(result) }], structuredContent: { result } };
}

export const Text = z.object({ result: z.string() });

export function build() {
  const server = new McpServer({ name: 'bench', version: '1.0.0' });
  server.registerTool(
    'echo',
    {
      description: 'Say it again.',
      inputSchema: z.object({ text: z.string() }),
      outputSchema: Text,
    },
    async ({ text }) => wrapped(text),
  );
  server.registerTool(
    'add',
    {
      description: 'Add two numbers.',
      inputSchema: z.object({ a: z.int(), b: z.int() }),
      outputSchema: z.object({ result: z.int() }),
    },
    async ({ a, b }) => wrapped(a + b),
  );
  server.registerTool(
    'order',
    {
      description: 'Order some items.',
      inputSchema: z.object({ items: z.array(Item) }),
      outputSchema: Text,
    },
    async ({ items }) => {
      const last = items[items.length - 1];
      const price = last.price.toFixed(2);
      return wrapped(`${last.quantity} of ${last.name} at ${price}, ${last.labels.at(-1)}`);
    },
  );
  server.registerTool(
    'describe',
    {
      description: 'Describe a text.',
      inputSchema: z.object({ text: z.string() }),
      outputSchema: z.object({ text: z.string(), size: z.int(), labels: z.array(z.string()) }),
    },
    async ({ text }) => {
      const structuredContent = { text, size: text.length, labels: ['short', 'plain'] };
      const content = [{ type: 'text', text: JSON.stringify(structuredContent) }];
      return { content, structuredContent };
    },
  );
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === 'stateless') serveStdio(build);
  else await build().connect(new StdioServerTransport());
}
