"""What MCP means, without any I/O: types, methods, revisions, eras, the rules of a conversation."""
