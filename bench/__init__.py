"""Fairlead against the other MCP runtimes, in one interleaved run."""
