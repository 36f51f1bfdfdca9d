// How a client reaches a server: over pipes if it is a command, over HTTP if it is an address.
const { SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

function transportTo([target, ...args]) {
    if (!target.startsWith('http://')) return new StdioClientTransport({ command: target, args });
    const Transport = target.endsWith('/sse') ? SSEClientTransport : StreamableHTTPClientTransport;
    return new Transport(new URL(target));
}

// One command that all of them start, or an address for each.
const targetOf = (server, index) => server[0].startsWith('http://') ? [server[index]] : server;

module.exports = { targetOf, transportTo };
