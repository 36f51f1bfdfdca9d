"""The HTTP endpoint of a server: admission, POST, sessions, HTTP+SSE.

`request_guard.py` authenticates clients and checks `Host` and `Origin`, `post_router.py` decides
what a POST is, `sessions` keeps sessions and `fastpath` answers most stateless POSTs.
"""
