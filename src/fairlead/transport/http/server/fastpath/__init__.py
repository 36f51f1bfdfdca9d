"""Complete POSTs answered on their connection, without ASGI.

`protocol.py` replaces uvicorn's HTTP protocol class, and `fastpath_call.py` the request cycle of
one POST. Only a POST that is in order takes this path: a stateless request, or a request in a
session. Everything else is handed to uvicorn as if it had just arrived, so that rejections, pages
and other methods have one implementation.

Passing through ASGI costs about as much as everything else in a call. With 64 calls in flight this
path answers 2.5 to 3 times as many stateless calls as the same application through ASGI, and for
sessions 3.5 times as many with JSON and 2.5 times as many with SSE responses. The figures of
sessions come from `python -m bench http-session --against COMMIT`, where COMMIT is a build without
the path for sessions. The path may be removed when such a comparison shows no clear gain any more.
The part for sessions (`session_call.py`) may also be
removed when clients of the handshake era no longer matter.
"""
