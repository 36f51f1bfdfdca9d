"""The HTTP endpoint of a server: admission, POST, sessions, HTTP+SSE."""
