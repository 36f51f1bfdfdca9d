"""HTTP requests answered without ASGI, for the common case."""
