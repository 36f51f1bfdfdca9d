"""Support for tests of MCP clients: conversations recorded once and replayed afterwards."""
