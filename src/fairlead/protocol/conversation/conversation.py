"""The protocol rules for a long-lived connection, as a state machine without I/O.

Each received message is applied immediately and produces one event. State changes are synchronous,
because the next message may already be in the same chunk. A protocol violation by this side raises
an exception; a violation by the peer is reported as an event.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...errors import RpcError
from ...wire import (
    Failure,
    Message,
    Notification,
    Params,
    Request,
    RequestId,
    Success,
    failure,
    to_json,
)
from ...wire.error_codes import INVALID_PARAMS, INVALID_REQUEST
from ...wire.json import read_json
from ..caller import Caller, Principal, check_declaration, read_params_head, stateless_caller
from ..envelope import SessionContext, SessionState
from ..methods import REQUESTS, find
from ..outgoing_params import Identity, with_meta
from ..revisions import NEWEST_HANDSHAKE, STATELESS, Revision, negotiate_revision
from ..trace_context import outgoing_trace
from .conversation_events import (
    ConversationEvent,
    ConversationRestarted,
    NotificationReceived,
    ProgressReceived,
    RequestCancelled,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    UnmatchedMessage,
)
from .lifecycle_params import (
    Agreement,
    cancel_reason_of,
    cancelled_id_of,
    decode_initialize,
    progress_token_of,
)
from .request_rules import check_before_handshake, check_server_request

__all__ = ["Agreement", "Conversation", "ConversationRole", "Fill"]

# Params of a request, or a function that builds them from the request's id.
Fill = Params | Callable[[RequestId], Params]


class ConversationRole(Enum):
    """The side of a conversation: client or server."""

    CLIENT = auto()
    SERVER = auto()


class Conversation:
    """One end of an MCP conversation: applies received messages and builds messages to send."""

    def __init__(
        self,
        role: ConversationRole,
        identity: Identity | None = None,
        *,
        principal: Principal,
        id_format: Literal["integer", "string"] = "integer",
        assume: Revision | None = None,
        session_id: str | None = None,
        gated: bool = True,
        directed: bool = True,
        relays: bool = False,
        restartable: bool = False,
    ) -> None:
        """Create a conversation before its handshake.

        `principal` is the identity of the peer, as determined by the entry point. With `assume`,
        requests before any handshake are served as if that revision had been negotiated.

        Without `gated`, requests may be sent in any order, as tools that test servers require.
        Without `directed`, notifications in the wrong direction are accepted, as relays require.
        With `relays`, progress and cancellations that name an unknown string id are accepted in the
        handshake era; this end uses numbers as ids, so a string id cannot belong to one of its
        requests. With `restartable`, another `initialize` starts a new conversation (server side).
        """
        self.role = role
        self._is_client = role is ConversationRole.CLIENT
        self.gated = gated
        self._directed = directed
        self._relays = relays
        self._restartable = restartable
        self.state = SessionState.UNINITIALIZED
        self.identity = identity or Identity()  # description of this end, which is sent to the peer
        self.numbers = id_format == "integer"
        self._session_id = session_id
        self.principal = principal  # identity of the peer, as determined by the entry point
        self._last_id = 0
        self._waiting: set[RequestId] = set()  # sent requests without a response
        self._owed: set[RequestId] = set()  # requests from the peer that this end has not answered
        # `initialize` must never be cancelled, so its id is kept. There are two ids, because both
        # sides number their requests independently and the numbers may be equal.
        self._sent_initialize: RequestId | None = None
        self._owed_initialize: RequestId | None = None
        self._heard_stateless = False
        # Description of the peer, set once it is known for the whole connection.
        self.peer = Caller(assume, assume.stateless, principal) if assume else None
        self.agreement: Agreement | None = None
        self._over = False
        self.log_level: str | None = None  # handshake era: the level set by `logging/setLevel`

    # Receiving

    def receive(self, message: Message) -> ConversationEvent:
        """Apply one message from the peer."""
        # Comparing types is faster than matching patterns, and every message is processed here.
        kind = type(message)
        if kind is Request:
            return self.receive_request(message)  # type: ignore[arg-type]
        if kind is Notification:
            return self._told(message)  # type: ignore[arg-type]
        return self._answered(message)  # type: ignore[arg-type]

    def receive_request(
        self, request: Request
    ) -> RequestReceived | RequestRejected | ConversationRestarted | UnmatchedMessage:
        """Apply a request. Like `receive`, for a message that is known to be a request."""
        if request.id in self._owed and not (
            # The new client numbers its requests from 1 again.
            self._restartable and request.method == "initialize"
        ):
            why = f"Request id {request.id!r} is already in use"
            return RequestRejected(failure(request.id, INVALID_REQUEST, why))
        if self._is_client and not self._may_be_asked(request.method):
            return UnmatchedMessage(request, "a request that a server must not send now")
        if self._over:
            return RequestRejected(
                failure(request.id, INVALID_REQUEST, "The connection is closing")
            )
        head = read_params_head(request.params)
        meta = head.meta
        if self._is_client:
            caller = self.sender
        # Either of these `_meta` members marks a stateless request, whatever its method is.
        elif not isinstance(meta, UnsetType) and (
            meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
        ):
            self._heard_stateless = True
            try:
                caller = stateless_caller(meta, self.principal)
            except RpcError as exc:
                return RequestRejected(failure(request.id, exc.code, exc.message, exc.data))
        elif request.method == "initialize":
            return self._introduced(request)
        elif self.peer is not None:
            caller = self.peer
        elif request.method == "ping":
            caller = self._unknown
        else:
            return RequestRejected(failure(request.id, INVALID_PARAMS, _NOT_INTRODUCED))
        self._owed.add(request.id)
        return RequestReceived(request, caller, head)

    def _may_be_asked(self, method: str) -> bool:
        """Return True if the server may send this request now.

        A stateless server never sends requests, and a client must not answer them. A server may
        send `ping` while `initialize` is in progress, or immediately after the response to it.
        """
        if self.peer is not None:
            return not self.peer.stateless
        return self._sent_initialize is not None and (method == "ping" or not self.gated)

    def _introduced(
        self, request: Request
    ) -> RequestReceived | RequestRejected | ConversationRestarted:
        """Apply `initialize` immediately, because the next request may be in the same chunk."""
        if self.agreement is not None and not self._restartable:
            return RequestRejected(failure(request.id, INVALID_REQUEST, "Already initialized"))
        try:
            params = decode_initialize(b"{}" if request.params is UNSET else request.params)
        except (msgspec.DecodeError, RecursionError) as exc:
            why = f"initialize must have protocolVersion, capabilities and clientInfo: {exc}"
            return RequestRejected(failure(request.id, INVALID_PARAMS, why))
        try:
            check_declaration(params.capabilities, params.client_info)
        except RpcError as exc:
            return RequestRejected(failure(request.id, exc.code, exc.message))
        again = self.agreement is not None
        owed = tuple(self._owed)
        if again:  # a bridge connects several clients to this server, one after another
            self._owed.clear()
            self.log_level = None
        revision = negotiate_revision(params.protocol_version)
        info = None if isinstance(params.client_info, UnsetType) else bytes(params.client_info)
        self.agreement = Agreement(revision=revision)
        self.peer = Caller(revision, False, self.principal, bytes(params.capabilities), info)
        self.state = SessionState.INITIALIZING
        self._owed.add(request.id)
        self._owed_initialize = request.id
        received = RequestReceived(request, self.peer, read_params_head(request.params))
        return ConversationRestarted(received, owed) if again else received

    def _told(self, message: Notification) -> ConversationEvent:
        method = message.method
        if method == "notifications/cancelled":
            return self._cancelled(message)
        if method == "notifications/progress":
            token = progress_token_of(message)
            if token in self._waiting:
                return ProgressReceived(token, message)
            if self._is_foreign(token):
                return NotificationReceived(message)
            return UnmatchedMessage(message, "progress of a request that is not pending")
        if method == "notifications/initialized" and self.role is ConversationRole.SERVER:
            if self.state is SessionState.INITIALIZING:
                self.state = SessionState.ACTIVE
            return NotificationReceived(message)
        if method in REQUESTS:
            # A server may execute such a call, to which no policy for requests would have applied.
            return UnmatchedMessage(message, "a request without an id")
        if self._directed and not self._may_come(method):
            return UnmatchedMessage(message, "a notification in the wrong direction")
        return NotificationReceived(message)

    def _may_come(self, method: str) -> bool:
        """Return True if the peer may send this notification.

        Only the direction of known methods is checked; unknown methods are accepted (PRO-15).
        """
        revision = self.peer.revision if self.peer is not None else STATELESS[-1]
        row = find(method, revision)
        sender = "server" if self.role is ConversationRole.CLIENT else "client"
        return row is None or row.sender in (sender, "both")

    def _cancelled(
        self, message: Notification
    ) -> RequestCancelled | NotificationReceived | UnmatchedMessage:
        request_id = cancelled_id_of(message)
        if request_id in self._owed and request_id != self._owed_initialize:
            self._owed.discard(request_id)
            return RequestCancelled(request_id, cancel_reason_of(message), message)
        if self.stateless and request_id in self._waiting:
            # A stateless server ends a subscription by cancelling the client's request.
            return NotificationReceived(message)
        if self._is_foreign(request_id):
            return NotificationReceived(message)
        return UnmatchedMessage(message, "a cancellation of a request that is not pending")

    def _is_foreign(self, name: RequestId | None) -> bool:
        """Return True if a notification that names this unknown id must be forwarded."""
        return self._relays and not self.stateless and isinstance(name, str)

    def receive_result(self, request_id: RequestId) -> bool:
        """Apply a response like `receive`, but without creating an event.

        Returns False if the request is not pending.
        """
        if request_id not in self._waiting:
            return False
        self._waiting.discard(request_id)
        return True

    def _answered(self, message: Success | Failure) -> ResponseReceived | UnmatchedMessage:
        if message.id is None or not self.receive_result(message.id):
            return UnmatchedMessage(message, "a response to a request that is not pending")
        return ResponseReceived(message)

    # Sending

    def reserve(self) -> RequestId:
        """Reserve an id for a request that may be sent later."""
        number = self._last_id = self._last_id + 1
        return number if self.numbers else _long_id(number)

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | Raw | None = None,
        *,
        track: bool = False,
        reserved: RequestId | None = None,
    ) -> Request:
        """Build a request with the era's metadata; `track` asks for progress notifications.

        Raises:
            LocalProtocolError: The request must not be sent now.
        """
        request_id = self._next_id(method, reserved)
        complete = self.with_metadata(method, params, request_id if track else None)
        return self._under_way(Request(request_id, method, complete))

    def with_metadata(
        self, method: str, params: Mapping[str, Any] | Raw | None, token: RequestId | None
    ) -> Params:
        """Return the params to send: with the era's metadata and the progress token."""
        stamp = self.identity.stamp if self.stateless or method == "server/discover" else b""
        return with_meta(params, token, stamp, outgoing_trace())

    def forward_request(
        self, method: str, fill: Fill, extra: dict[str, Raw] | None = None
    ) -> Request:
        """Build a forwarded request with a new id. `fill` is the params or builds them.

        A relay may forward requests that need a capability the client did not declare.

        Raises:
            LocalProtocolError: The request must not be sent now.
        """
        request_id = self._next_id(method, undeclared=True)
        params = fill(request_id) if callable(fill) else fill
        return self._under_way(Request(request_id, method, params, extra))

    def begin(self, method: str) -> RequestId:
        """Register a request that the caller encodes itself, and return its id."""
        request_id = self._next_id(method)
        self._waiting.add(request_id)
        return request_id

    def _next_id(
        self, method: str, reserved: RequestId | None = None, *, undeclared: bool = False
    ) -> RequestId:
        """Return the id for a request; raise `LocalProtocolError` if it must not be sent."""
        if self.state is not SessionState.ACTIVE:
            check_before_handshake(method, self.state, self._is_client, self.gated)
        elif self.gated and not self._is_client:
            assert self.peer is not None
            check_server_request(method, self.peer, undeclared=undeclared)
        if reserved is not None:
            return reserved
        number = self._last_id = self._last_id + 1
        return number if self.numbers else _long_id(number)

    def _under_way(self, request: Request) -> Request:
        if request.method == "initialize":
            self._sent_initialize = request.id
        self._waiting.add(request.id)
        return request

    def notification(
        self, method: str, params: Mapping[str, Any] | Raw | None = None
    ) -> Notification:
        """Build a notification."""
        if method == "notifications/initialized" and self._is_client:
            # Without `gated`, the client may have sent `initialize` as an ordinary request.
            by_hand = not self.gated and self.state is SessionState.UNINITIALIZED
            if by_hand or self.state is SessionState.INITIALIZING:
                self.state = SessionState.ACTIVE
        return Notification(method, with_meta(params, None, b""))

    def abandon(self, request_id: RequestId, reason: str) -> Notification | None:
        """Forget a request sent by this end, and return the cancellation to send, if any."""
        if request_id not in self._waiting:
            return None
        self._waiting.discard(request_id)
        # The specification forbids cancelling `initialize`.
        if request_id == self._sent_initialize:
            return None
        body = to_json({"requestId": request_id, "reason": reason})
        return Notification("notifications/cancelled", Raw(body))

    def is_unanswered(self, request_id: RequestId) -> bool:
        """Return True if a request from the peer has not been answered yet."""
        return request_id in self._owed

    def mark_answered(self, request_id: RequestId) -> bool:
        """Record that a request from the peer was answered.

        Returns False if it had already been answered; then no response must be sent.
        """
        if request_id in self._owed:
            self._owed.discard(request_id)
            if request_id == self._owed_initialize:
                # A stateless peer may reuse the id for a later request.
                self._owed_initialize = None
            return True
        return False

    def set_agreement(self, agreement: Agreement) -> None:
        """Set the server's era, revision and capabilities (client side).

        In the handshake era, the conversation becomes active when `notifications/initialized` is
        built.
        """
        self.agreement = agreement
        stateless = agreement.revision.stateless
        self.peer = Caller(
            agreement.revision,
            stateless,
            self.principal,
            agreement.capabilities,
            agreement.server_info,
        )
        # The connection may have closed before the response was processed.
        if self.state is SessionState.UNINITIALIZED:
            self.state = SessionState.ACTIVE if stateless else SessionState.INITIALIZING

    def set_revision(self, revision: Revision) -> None:
        """Replace the negotiated revision with a server's older revision (server side)."""
        assert self.peer is not None
        self.agreement = Agreement(revision=revision)
        self.peer = msgspec.structs.replace(self.peer, revision=revision)

    def closing(self) -> None:
        """Refuse new requests from now on."""
        self._over = True
        if self.state is not SessionState.CLOSED:
            self.state = SessionState.CLOSING

    def closed(self) -> tuple[RequestId, ...]:
        """Close the conversation, and return the ids of requests that the peer has not answered."""
        self.state = SessionState.CLOSED
        self._over = True
        lost = tuple(self._waiting)
        self._waiting.clear()
        self._owed.clear()
        return lost

    # State

    @property
    def stateless(self) -> bool:
        """Return True if the peer speaks the stateless era (client side)."""
        return self.peer is not None and self.peer.stateless

    @property
    def accepts_batches(self) -> bool:
        """True if batches are accepted: by clients always, by servers if the revision has them."""
        if self.role is ConversationRole.CLIENT:
            return True
        return self.peer is not None and self.peer.revision.batches

    @property
    def sender(self) -> Caller:
        """Return the peer's description; before the handshake, it has only the principal."""
        return self.peer or self._unknown

    @property
    def _unknown(self) -> Caller:
        return Caller(NEWEST_HANDSHAKE, False, self.principal)

    @property
    def unanswered_count(self) -> int:
        """Return the number of requests from the peer that have not been answered."""
        return len(self._owed)

    @property
    def null_error_id(self) -> bool:
        """Return True if errors for unreadable requests have `id: null`, else no id (DEC-15)."""
        if self.peer is None:
            return not self._heard_stateless
        return self.peer.revision.null_error_id

    @property
    def session(self) -> SessionContext:
        """Return a snapshot of the conversation as plain data."""
        ours = _plain(self.identity.info), _plain(self.identity.capabilities)
        theirs: tuple[dict[str, Any] | None, dict[str, Any] | None] = (None, None)
        if self.peer is not None:
            theirs = _plain(self.peer.info), _plain(self.peer.capabilities)
        client, server = (ours, theirs) if self.role is ConversationRole.CLIENT else (theirs, ours)
        agreement = self.agreement
        return SessionContext(
            state=self.state,
            session_id=self._session_id,
            protocol_version=agreement.revision.value if agreement else None,
            client_info=client[0],
            client_capabilities=client[1],
            server_info=server[0],
            server_capabilities=server[1],
            instructions=agreement.instructions if agreement else None,
        )


_NOT_INTRODUCED = (
    "Send initialize first, or add _meta with io.modelcontextprotocol/protocolVersion and "
    f"io.modelcontextprotocol/clientCapabilities; supported: {', '.join(Revision)}"
)


def _long_id(number: int) -> str:
    from secrets import token_hex
    from time import time_ns

    # Contains the time and random digits, so that the ids of different connections differ in logs.
    return f"{token_hex(8)}-{time_ns() // 1_000_000:x}-{number}"


def _plain(raw: bytes | None) -> dict[str, Any] | None:
    return read_json(raw, dict[str, Any], None)
