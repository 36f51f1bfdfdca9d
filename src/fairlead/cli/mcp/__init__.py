"""`fairlead mcp`, `list`, `doctor` and `paths`: configured servers."""
