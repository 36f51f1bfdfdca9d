"""MCP over WebSocket for clients and servers: one message per text frame."""
