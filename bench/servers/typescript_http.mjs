// The servers of typescript_server.mjs and typescript_thousand.mjs over HTTP: PORT, which of them,
// and how it answers. The SDK has two ways: `createMcpHandler` for the stateless era, which builds a
// server for each request, and a transport with a server of its own for each session.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import {
  localhostHostValidation,
  localhostOriginValidation,
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
} from '@modelcontextprotocol/node';
import { createMcpHandler } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { Text, wrapped } from './typescript_server.mjs';

const [port, which, answers] = process.argv.slice(2);
const { build } = await import(`./typescript_${which}.mjs`);

function complete() {
  const server = build();
  if (which === 'thousand') {
    server.registerTool(
      'echo',
      {
        description: 'Say it again.',
        inputSchema: z.object({ text: z.string() }),
        outputSchema: Text,
      },
      async ({ text }) => wrapped(text),
    );
  }
  return server;
}

const sessions = new Map();

async function inSession(req, res) {
  let transport = sessions.get(req.headers['mcp-session-id']);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableJsonResponse: answers === 'json',
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await complete().connect(transport);
  }
  await transport.handleRequest(req, res);
}

const validHost = localhostHostValidation();
const validOrigin = localhostOriginValidation();
const serve = answers === 'stateless' ? toNodeHandler(createMcpHandler(complete)) : inSession;
createServer((req, res) => {
  if (validHost(req, res) && validOrigin(req, res)) void serve(req, res);
}).listen(Number(port), '127.0.0.1');
