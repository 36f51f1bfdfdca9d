// A thousand tools with the TypeScript SDK, for the figures of listing: those of `thousand.py`.

import { fileURLToPath } from 'node:url';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const SYSTEMS =
  'billing calendar catalog crm helpdesk inventory payroll shipping tickets warehouse'.split(' ');
const THINGS =
  'accounts contracts customers documents events invoices notes orders projects teams'.split(' ');

const text = (note) => z.string().describe(note);
const integer = (note, value) => z.int().default(value).describe(note);
const number = (note, value) => z.number().default(value).describe(note);
const flag = (note, value) => z.boolean().default(value).describe(note);
const choice = (note, ...values) => z.enum(values).default(values[0]).describe(note);
const texts = (note) => z.array(z.string()).describe(note);
const textsOrNone = (note) => z.array(z.string()).nullable().default(null).describe(note);

const parameters = (things) => {
  const id = text(`Which of the ${things}, as search returned it`);
  return {
    search: {
      query: text(`Words to look for in the ${things}`),
      limit: integer('How many to return at most', 20),
      exact: flag('Whether all words have to occur', false),
      labels: textsOrNone('Only those with one of these labels'),
    },
    get: {
      id,
      fields: textsOrNone('The fields to return; all by default'),
      revision: integer('An earlier revision; 0 is the current one', 0),
    },
    count: {
      since: text('The first day, as YYYY-MM-DD'),
      until: text('The last day, as YYYY-MM-DD'),
      by: choice('What to count by', 'day', 'week', 'month'),
    },
    export: {
      ids: texts(`Which of the ${things} to export`),
      format: choice('The format of the file', 'csv', 'json', 'pdf'),
      compress: flag('Whether to compress the file', true),
    },
    compare: {
      first: text('The one to start from'),
      second: text('The one to compare it with'),
      tolerance: number('Numbers closer than this are the same', 0.01),
    },
    create: {
      title: text('A short title, in the language of the reader'),
      text: text('All there is to say, in Markdown'),
      priority: integer('From 1, the most urgent, to 5', 3),
      labels: textsOrNone('Labels to find it by'),
    },
    update: {
      id,
      values: z.record(z.string(), z.string()).describe('New values, by the name of the field'),
      notify: flag('Whether to tell those who follow it', true),
    },
    delete: {
      id,
      reason: text('Why, for the log'),
      forever: flag('Whether it skips the bin', false),
    },
    assign: {
      id,
      person: text('The address of who is to do it'),
      hours: number('How long it may take', 1.0),
      role: choice('As what', 'owner', 'helper', 'reader'),
    },
    merge: {
      source: text('The one that goes'),
      target: text('The one that stays'),
      keep: textsOrNone('Fields to take from the one that goes'),
    },
  };
};

export function build() {
  const server = new McpServer({ name: 'thousand', version: '1.0.0' });
  for (const system of SYSTEMS) {
    for (const things of THINGS) {
      for (const [verb, shape] of Object.entries(parameters(things))) {
        const title = verb[0].toUpperCase() + verb.slice(1);
        const description = `${title} ${things} in the ${system} system, as its users see them.`;
        server.registerTool(
          `${system}_${verb}_${things}`,
          { description, inputSchema: z.object(shape) },
          async (given) => ({ content: [{ type: 'text', text: JSON.stringify(given) }] }),
        );
      }
    }
  }
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] === 'stateless') serveStdio(build);
  else await build().connect(new StdioServerTransport());
}
