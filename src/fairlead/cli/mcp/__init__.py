"""Commands for configured servers: `mcp`, `list`, `doctor` and `paths`."""
