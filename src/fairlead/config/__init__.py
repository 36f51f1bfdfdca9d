"""Configured servers: where host programs keep them, and which may run."""
