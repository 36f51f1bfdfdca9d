"""HTTP endpoint of a server: admission, POST, sessions and HTTP+SSE.

`request_guard.py` authenticates clients and checks `Host` and `Origin`, `endpoint.py` routes POSTs
by era, `sessions` contains sessions and their streams, and `fastpath` answers most POSTs without
ASGI.
"""
