// The TypeScript SDK's client; the same conversation on stdin and stdout as drive.py.

import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'bench', version: '1.0.0' });
await client.connect(
  command.startsWith('http://')
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args }),
);

const say = (fact) => process.stdout.write(JSON.stringify(fact) + '\n');
const call = (text) => client.callTool({ name: 'echo', arguments: { text } });

let number = 0;
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const [calls, window] = line.split(' ').map(Number);
  const texts = Array.from({ length: calls }, () => String(number++).padStart(10, '0').padEnd(50, 'x'));
  const results = new Array(calls);
  let next = 0;
  const work = async () => {
    for (let index = next++; index < calls; index = next++) results[index] = await call(texts[index]);
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: window }, work));
  const seconds = (performance.now() - start) / 1000;
  const wrong = results.findIndex((result, index) => result.content[0].text !== texts[index]);
  if (wrong >= 0) throw new Error(`asked to echo ${texts[wrong]}, got ${JSON.stringify(results[wrong])}`);
  say({ seconds });
}
await client.close();
