// A client that logs in and calls tools. It reads lines from stdin: the name of a tool, or a redirect
// URL after it printed {visit: URL}. It prints {text} for each call. Argument: the URL of the server.
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const readline = require('node:readline/promises');

const REDIRECT = 'http://127.0.0.1:9/callback';
const [url] = process.argv.slice(2);
const input = readline.createInterface({ input: process.stdin });
const lines = input[Symbol.asyncIterator]();

class Provider {
    get redirectUrl() { return REDIRECT; }
    get clientMetadata() {
        return {
            client_name: 'typescript', redirect_uris: [REDIRECT], application_type: 'native',
            grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: 'none'
        };
    }
    state() { return 'typescript-state'; }
    clientInformation() { return this.client; }
    saveClientInformation(client) { this.client = client; }
    tokens() { return this.saved; }
    saveTokens(tokens) { this.saved = tokens; }
    redirectToAuthorization(address) {
        this.visits = true;
        console.log(JSON.stringify({ visit: String(address) }));
    }
    saveCodeVerifier(verifier) { this.verifier = verifier; }
    codeVerifier() { return this.verifier; }
}

const authProvider = new Provider();
let session;  // the connected client and its transport

async function connect(transport) {
    const client = new Client({ name: 'typescript', version: '1' });
    await client.connect(transport);
    return { client, transport };
}

// Run an action; after a redirect, finish the login with the next line and run it again.
async function authorized(action) {
    const transport = session?.transport ?? new StreamableHTTPClientTransport(new URL(url), { authProvider });
    try {
        session ??= await connect(transport);
        return await action(session.client);
    } catch (error) {
        if (!authProvider.visits) throw error;
        authProvider.visits = false;
        await transport.finishAuth(new URL((await lines.next()).value).searchParams);
        await session?.client.close();
        session = undefined;
        return authorized(action);
    }
}

async function main() {
    for (let line = await lines.next(); !line.done; line = await lines.next()) {
        const result = await authorized((client) => client.callTool({ name: line.value, arguments: {} }));
        console.log(JSON.stringify({ text: result.content[0].text }));
    }
}

main().catch((error) => { console.error(error); process.exit(1); });
