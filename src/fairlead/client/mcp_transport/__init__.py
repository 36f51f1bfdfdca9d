"""Transports of a client: child processes, HTTP, WebSocket and servers in the same process."""
