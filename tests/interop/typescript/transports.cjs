// Transports of a client: pipes if the server is a command, HTTP if it is a URL.
const { SSEClientTransport, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

function transportTo([target, ...args]) {
    if (!target.startsWith('http://')) return new StdioClientTransport({ command: target, args });
    const Transport = target.endsWith('/sse') ? SSEClientTransport : StreamableHTTPClientTransport;
    return new Transport(new URL(target));
}

// One command for all clients, or a URL for each.
const targetOf = (server, index) => server[0].startsWith('http://') ? [server[index]] : server;

module.exports = { targetOf, transportTo };
