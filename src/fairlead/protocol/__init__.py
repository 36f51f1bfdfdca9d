"""MCP semantics without I/O: types, methods, revisions, eras and the rules of a conversation."""
