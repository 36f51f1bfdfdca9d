"""A server as an ASGI application: pages, REST, OpenAPI, and the uvicorn runner."""
