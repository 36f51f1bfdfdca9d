"""POSTs in a session: `initialize`, later messages, and batches."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from .....errors import RemoteProtocolError, RpcError
from .....protocol.caller import Principal
from .....protocol.revisions import Revision, find_revision
from .....wire import Batch, Message, Request, encode, failure
from .....wire.error_codes import INVALID_REQUEST
from .....wire.sse import HEARTBEAT
from ....client_shares import NoShareLeft
from ..asgi import WHOLE_STREAM, AsgiCall, HttpCall, send_stopped
from ..error_status import ErrorStatus
from ..http_settings import HttpSettings
from ..refusals import MessageRefusals, unknown_session
from ..request_headers import wants_events
from .event_stream import EventStream, write_stream
from .http_session import HttpSession
from .session_manager import SessionManager

__all__ = ["ASSUMED_REVISION", "SessionPosts"]

# assumed if a client states no revision, as later revisions specify
ASSUMED_REVISION = Revision.V2025_03_26


class SessionPosts(Struct, eq=False):
    """Dispatch of messages to sessions, with responses as JSON or event streams."""

    settings: HttpSettings
    sessions: SessionManager
    refusals: MessageRefusals
    status: ErrorStatus
    # Returns the scopes that messages require.
    required_scopes: Callable[[Principal, Sequence[Message]], Sequence[str]]

    async def initialize(self, call: AsgiCall, message: Request, principal: Principal) -> None:
        """Open a session and respond with its id if the server accepts the handshake."""
        session = await self._open(call, principal)
        if session is None:
            return
        frames = await _receive_first(call, session, message)
        if call.gone:  # the client disconnected and will not receive the session id
            await self.sessions.end(session)
        elif not frames:
            await call.send_later("the server is shutting down")
        elif session.settle_revision():
            if self.sessions.restorer is not None:
                # Stored before the response: the next request may go to another process.
                await self.sessions.restorer.keep(session, message)
            given = [(b"mcp-session-id", session.id.encode())]
            await call.answer(200, frames[-1][1], headers=given)
        else:
            await call.answer(200, frames[-1][1])
            await self.sessions.end(session)

    async def _open(self, call: AsgiCall, principal: Principal) -> HttpSession | None:
        """Open a session; if that is impossible, respond with 503 and return None."""
        if self.sessions.draining or self.sessions.closing:
            await call.send_later("the server is shutting down")
            return None
        try:
            return self.sessions.open(call.context, principal)
        except NoShareLeft:
            await call.send_later("too many sessions; try again later")
            return None

    async def post(
        self,
        call: AsgiCall,
        session: HttpSession,
        messages: list[Message],
        principal: Principal,
        *,
        batch: bool = False,
    ) -> None:
        """Pass the messages of one POST to a session and respond to its requests."""
        requests = [message for message in messages if isinstance(message, Request)]
        if not requests:
            await session.take_all(messages, principal)
            await call.answer(202)
            return
        for request in requests:
            if session.asked(request.id):
                why = RpcError(INVALID_REQUEST, f"Request id {request.id!r} is already in use")
                await self.refusals.refuse(call, request, why, 400)
                return
        scopes = self.required_scopes(principal, messages)
        stream = session.open_stream({request.id for request in requests}, scopes)
        # Attached before the messages are delivered, because handlers may respond synchronously.
        stream.attach(call)
        await session.take_all(messages, principal)
        if self.settings.answers == "sse" and wants_events(call):
            await self.answer_with_events(call, session, stream)
        else:
            await self.answer(call, session, stream, batch=batch)

    async def answer(
        self, call: HttpCall, session: HttpSession, stream: EventStream, *, batch: bool = False
    ) -> None:
        """Respond with JSON if the stream contains responses only, else with events.

        A client that disconnects does not cancel its requests.
        """
        if not stream.done:
            await asyncio.sleep(0)  # most tools respond immediately and need no watcher
        if stream.done:
            as_events = stream.chatty and wants_events(call)
        else:
            as_events = await self._wait_for_answer(call, stream)
        if as_events or not stream.done:
            await self.answer_with_events(call, session, stream)
            return
        frames = [frame for _, frame in stream.take()]
        if batch:
            await call.answer(200, b"[" + b",".join(frames) + b"]")
        elif frames:
            await call.answer(self.status.of_frame(call, frames[-1]), frames[-1])
        else:
            await self._answer_closed(call)

    async def _answer_closed(self, call: HttpCall) -> None:
        """Answer a request whose session was closed before its response."""
        if not self.sessions.closing and wants_events(call):
            # The client itself has closed the session and expects the stream to end:
            # the client of the official Python SDK fails if it receives an error status now.
            await call.answer(200, HEARTBEAT, *WHOLE_STREAM)
            return
        if self.sessions.closing:
            # Not 404, because the next process may restore the session.
            await send_stopped(call)
            return
        error = unknown_session()
        await call.answer(404, encode(failure(None, error.code, error.message, absent_id=True)))

    async def answer_with_events(
        self, call: HttpCall, session: HttpSession, stream: EventStream
    ) -> None:
        """Respond with an event stream, which the client can resume if its revision allows it."""
        if call.gone:
            stream.detach(call)
            return
        revision = session.revision
        if revision is not None and revision.resumable:
            session.keep(stream)
        prime = revision is not None and revision.polling
        await write_stream(call, stream, self.settings, prime=prime)

    async def _wait_for_answer(self, call: HttpCall, stream: EventStream) -> bool:
        """Wait for a message to send; return True if it must be sent as an event."""
        events, late = wants_events(call), False

        async def beat() -> None:
            nonlocal late
            # Start the stream, because a proxy could close a silent connection.
            late = True
            stream.wake()

        def begins() -> bool:
            return events and (stream.chatty or stream.leaving or late)

        call.watch(stream.wake, beat, self.settings.heartbeat)
        try:
            while not (stream.done or call.gone or begins()):
                await stream.wait()
        finally:
            call.unwatch()
        return begins()

    async def batch(self, call: AsgiCall, batch: Batch, principal: Principal) -> None:
        """Respond to a batch, in the session it names or in a temporary one."""
        session_id = call.headers.get(b"mcp-session-id")
        session = None
        if session_id is not None:
            session = await self.sessions.find(call, session_id, principal)
            if session is None:
                await self.refusals.refuse(call, batch, unknown_session(), 404)
                return
        revision = _batch_revision(call) if session is None else session.revision
        unwanted = session is None and self.settings.require_session
        if revision is None or not revision.batches or unwanted:
            why = RpcError(INVALID_REQUEST, "Batches are not part of the agreed protocol version")
            await self.refusals.refuse(call, batch, why, 400)
            return
        messages = [item for item in batch.items if not isinstance(item, RemoteProtocolError)]
        wrong = [item for item in batch.items if isinstance(item, RemoteProtocolError)]
        if wrong:
            error = RpcError(wrong[0].code, str(wrong[0]))
            await self.refusals.refuse(call, batch, error, 400)
        elif session is not None:
            await self.post(call, session, messages, principal, batch=True)
        else:
            await self._batch_alone(call, messages, revision, principal)

    async def _batch_alone(
        self, call: AsgiCall, messages: list[Message], revision: Revision, principal: Principal
    ) -> None:
        """Respond to a batch in a session that ends with the response."""
        session = await self._open(call, principal)
        if session is None:
            return
        try:
            session.revision = revision
            session.simulate_handshake("_", revision, {"name": "", "version": ""})
            await self.post(call, session, messages, principal, batch=True)
        finally:
            await self.sessions.end(session)


async def _receive_first(
    call: AsgiCall, session: HttpSession, message: Request
) -> list[tuple[int, bytes]]:
    """Return the frames with which a session responds to `initialize`."""
    stream = session.open_stream({message.id})
    stream.attach(call)
    session.hand_over(message)
    call.watch(stream.wake, _no_beat, 0)
    try:
        while not (stream.done or call.gone):
            await stream.wait()
    finally:
        call.unwatch()
    return stream.take()


async def _no_beat() -> None:
    """Send nothing: the headers of the response depend on the outcome of the handshake."""


def _batch_revision(call: AsgiCall) -> Revision | None:
    version = call.headers.get(b"mcp-protocol-version", ASSUMED_REVISION.value.encode())
    return find_revision(version.decode("latin-1"))
