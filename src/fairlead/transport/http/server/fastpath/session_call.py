"""Fast path for requests in a session, without ASGI and without a task or stream until needed.

Calls in a session are 3.5 times as fast with JSON responses and 2.5 times with SSE, measured with
`python -m bench http-session --against` a build without this module. Remove it when the ASGI path
(`sessions/session_posts.py`) is at most 1.3 times slower.
"""

from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from .....protocol.caller import Principal
from .....wire import Request, RequestId
from ..asgi import JSON
from ..sessions.event_stream import EventStream
from ..sessions.http_session import HttpSession
from .fastpath_call import FastPathCall, FastPathConnection, RequestHead

__all__ = ["FastPathSessionCall", "answer_session_post"]

_PLAIN = STATUS_LINE[200] + b"content-type: " + JSON + b"\r\ncontent-length: %d\r\n\r\n%b"


def answer_session_post(
    connection: FastPathConnection,
    head: RequestHead,
    message: Request,
    who: Principal,
    scopes: Sequence[str],
) -> bool:
    """Answer a request in a session; return False if the ASGI path has to handle it.

    `scopes` are those that the request requires.
    """
    edge = head.edge
    if head.session_id is None or message.method == "initialize":
        return False
    session = edge.sessions.get(head.session_id, who)
    if session is None or session.asked(message.id):
        return False
    call = FastPathSessionCall(connection, head, session, message.id)
    if scopes:
        call.scopes = scopes
    connection.take_over(call)
    if edge.settings.answers == "sse":  # heads on this path accept both content types
        stream = session.open_stream({message.id}, scopes)
        stream.attach(call)
        session.receive(message, who)
        connection.begin(edge.session_posts.answer_with_events(call, session, stream))
    else:
        # Registered before `receive`, because the handler may respond synchronously.
        session.expect(message.id, call)
        if edge.settings.heartbeat:
            connection.patience.set(edge.settings.heartbeat)
        session.receive(message, who)
    return True


class FastPathSessionCall(FastPathCall):
    """A request in a session that waits for its response without a task or a stream.

    If another message precedes the response, or the response takes long, a task writes a stream.
    """

    scopes: Sequence[str] = ()
    _late = False

    def __init__(
        self,
        connection: FastPathConnection,
        head: RequestHead,
        session: HttpSession,
        request_id: RequestId,
    ) -> None:
        self._connection = connection
        self._head = head
        self.keep_alive = head.keep_alive
        self._session = session
        self._request_id = request_id

    def set(self) -> None:
        super().set()
        # After a disconnect the response goes to a stream, which the client can resume.
        if self.gone:
            self._session.use_stream(self._request_id)

    def silent(self) -> None:
        if self._beat is not None:
            super().silent()
        else:
            self._late = True
            self._session.use_stream(self._request_id)

    def answered(self, frame: bytes) -> None:
        # The common case, with a precomputed head instead of `answer_now`.
        if self.keep_alive and not self.gone:
            connection = self._connection
            connection.transport.write(_PLAIN % (len(frame), frame))
            self.response_complete = True
            connection.fast_path_complete()
        else:
            self.answer_now(200, frame)

    def switch_to_stream(self, stream: EventStream) -> None:
        connection, session = self._connection, self._session
        connection.patience.clear()
        if not self.gone:
            stream.attach(self)
            posts = self._head.edge.session_posts
            answer = posts.answer_with_events if self._late else posts.answer
            connection.begin(answer(self, session, stream))
