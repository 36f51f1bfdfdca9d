"""GET and DELETE of a session: the listening stream, resumed streams, and termination."""

from .....errors import RpcError
from .....protocol.caller import Principal
from .....protocol.revisions import HANDSHAKE
from .....wire.error_codes import INVALID_REQUEST
from ..asgi import AsgiCall
from ..http_settings import HttpSettings
from ..refusals import MessageRefusals, unknown_session
from ..request_headers import accepts
from .event_store import read_event_id
from .event_stream import EventStream, write_stream
from .http_session import HttpSession
from .session_manager import SessionManager

__all__ = ["StreamResumption"]

_ALLOWED = [(b"allow", b"POST")]


class StreamResumption:
    """Handler of clients that listen to a session, resume a stream or end the session."""

    def __init__(
        self, settings: HttpSettings, sessions: SessionManager, refusals: MessageRefusals
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._refusals = refusals

    async def get(self, call: AsgiCall, principal: Principal) -> None:
        """Send the listening stream of a session, or resume the stream in `Last-Event-ID`."""
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "GET requires an Mcp-Session-Id header", _ALLOWED)
            return
        if not accepts(call.headers.get(b"accept", b""), b"text/event-stream"):
            await call.send_text(406, "Accept: text/event-stream")
            return
        session = await self._sessions.find(call, session_id, principal)
        if session is None:
            await self._refusals.refuse(call, None, unknown_session(), 404)
            return
        last = call.headers.get(b"last-event-id")
        if last is not None:
            await self._resume(call, session, last.decode("latin-1"))
        else:
            await self._listen(call, session, session.standalone, None)

    async def _resume(self, call: AsgiCall, session: HttpSession, last: str) -> None:
        where = read_event_id(last)
        if where is None:
            await self._refuse(
                call, f"Invalid Last-Event-ID {last[:50]!r}: expected an id of this server"
            )
            return
        name, number = where
        stream = session.find(name)
        if stream is not None:
            stream.attach(call)
            stream.take()  # drop unwritten messages, which are replayed from the store
        # Events after this number reach the new carrier directly and must not be replayed as well.
        upto = stream.number if stream is not None else None
        missed = await self._sessions.store.after(session.id, name, number)
        if stream is None and missed is None:
            await self._refuse(call, f"The stream of event {last!r} has ended")
            return
        replay = [(n, frame) for n, frame in missed or [] if upto is None or n <= upto]
        await self._listen(call, session, stream or _ended_stream(session, name), replay)

    async def _refuse(self, call: AsgiCall, why: str) -> None:
        await self._refusals.refuse(call, None, RpcError(INVALID_REQUEST, why), 400)

    async def _listen(
        self,
        call: AsgiCall,
        session: HttpSession,
        stream: EventStream,
        replay: list[tuple[int, bytes]] | None,
    ) -> None:
        revision = session.revision or HANDSHAKE[-1]
        stream.attach(call)
        if stream is session.standalone and revision.resumable:
            stream.number_events()
        await write_stream(
            call,
            stream,
            self._settings,
            prime=revision.polling and replay is None,
            replay=replay,
        )

    async def delete(self, call: AsgiCall, principal: Principal) -> None:
        """Terminate a session."""
        session_id = call.headers.get(b"mcp-session-id")
        if session_id is None:
            await call.send_text(405, "DELETE requires an Mcp-Session-Id header", _ALLOWED)
            return
        name = session_id.decode("latin-1")
        session, restorer = self._sessions.get(name, principal), self._sessions.restorer
        if session is not None:
            await self._sessions.end(session)
        # A session of another process, or of this one before a restart, may be in the store.
        elif restorer is None or not await restorer.drop(name, call.path, principal):
            await self._refusals.refuse(call, None, unknown_session(), 404)
            return
        await call.answer(200)


def _ended_stream(session: HttpSession, name: str) -> EventStream:
    """Return a finished stream, of which only stored events are left to send."""
    stream = EventStream(session.id, name, None)
    stream.numbered = stream.done = True
    return stream
