"""Client side of Streamable HTTP and HTTP+SSE."""
