"""Benchmarks of Fairlead and other MCP runtimes in one interleaved run."""
