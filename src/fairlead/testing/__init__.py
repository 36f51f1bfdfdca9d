"""Support for testing MCP clients: conversations are recorded once and replayed afterwards."""
