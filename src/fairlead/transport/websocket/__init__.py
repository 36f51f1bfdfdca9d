"""MCP over WebSocket: one message in each text frame, at both ends, in every era."""
