"""MCP over HTTP: client and server side, for both eras."""
