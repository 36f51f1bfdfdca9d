"""Fast path for complete POSTs, which are answered on their connection without ASGI.

`protocol.py` replaces uvicorn's HTTP protocol class, and `fastpath_call.py` the request cycle of
one POST. Only valid POSTs take this path: a stateless request, or a request in a session.
Everything else is passed to uvicorn as if it had just arrived, so that rejections, pages and other
methods have one implementation.

ASGI costs about as much as everything else in a call. With 64 calls in flight this path answers 2.5
to 3 times as many stateless calls as the same application through ASGI, and in sessions 3.5 times
as many with JSON and 2.5 times as many with SSE responses. The figures for sessions come from
`python -m bench http-session --against COMMIT`, where COMMIT is a build without the path for
sessions. Remove the path when such a comparison shows no clear gain. The part for sessions
(`session_call.py`) can also be removed when clients of the handshake era no longer matter.
"""
