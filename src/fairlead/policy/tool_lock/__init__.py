"""Approved definitions of tools in a lock file, and comparison with the current ones."""
