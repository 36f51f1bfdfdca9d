"""Streamable HTTP and HTTP+SSE from the side of a client."""
