"""ASGI application of a server: status page, REST API, OpenAPI document and uvicorn runner."""
