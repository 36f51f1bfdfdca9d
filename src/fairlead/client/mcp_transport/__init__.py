"""Client transports: child processes, HTTP, WebSocket and servers in the same process."""
