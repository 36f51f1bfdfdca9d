"""MCP over HTTP, both ends and both eras."""
