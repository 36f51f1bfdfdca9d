"""The lock file with approved tool definitions, and its comparison with the current definitions."""
