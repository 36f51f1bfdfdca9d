"""The meaning of MCP, without I/O: types, methods, revisions, eras and rules of a conversation."""
