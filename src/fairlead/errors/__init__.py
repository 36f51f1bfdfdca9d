"""Exceptions raised by Fairlead, grouped by how the caller should react.

    FairleadError                 base class; MCPClientError is an alias
    ├── ProtocolError             a rule of the protocol was violated: .code
    │   ├── LocalProtocolError    by this side: fix the call
    │   └── RemoteProtocolError   by the peer, or unreadable input: send an error or disconnect
    ├── RpcError                  the peer returned an error: .code .message .data
    ├── TransportError            retry or fail; .delivered tells whether a retry is safe
    │   ├── ConnectFailed         nothing was sent
    │   │   ├── ServerBusy        all connections are in use: retry later
    │   │   └── LocalResourceError    this machine ran out of .resource
    │   ├── HttpError             .status .body .headers .retry_after .www_authenticate
    │   ├── AuthorizationError    OAuth failed: .step .server .issuer .error
    │   │   └── LoginRequired     a person has to log in: .remedy .scopes
    │   ├── RequestTimeout        also a TimeoutError
    │   ├── NoAnswer              also a ConnectionError: .request_id .parts
    │   ├── ChannelClosed         also a ConnectionError: .exit_code .stderr (ClientClosedError)
    │   └── RetriesExhausted      the last failure is the cause
    ├── CannotAsk                 the client does not support an input request: .capability
    ├── InputNotGiven             this client cannot serve an input request: .method .capability
    │   └── UrlElicitationRequired    also an RpcError; visit .pages, then repeat the call
    ├── OutputMismatch            a result does not match the schema of its tool: .tool .result
    ├── ConfigError               fix a file: .path .line
    ├── CircuitOpenError          suspended after repeated failures: wait .remaining seconds
    └── MCPToolError              raised by a tool, becomes its result: .code .message .suggestion;
                                  raised by `raise_for_error()` of a result: .result

Facts are attributes, and `__str__` builds the message. The message is written for a server's owner:
it may quote the server's stderr and name its command. `protocol/public_reason.py` builds the text
for a gateway's clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .base_error import FairleadError
from .mcp_tool_error import MCPErrorCode, MCPToolError

__all__ = [
    "OUTPUT_HINT",
    "AuthorizationError",
    "CannotAsk",
    "ChannelClosed",
    "CircuitOpenError",
    "ClientClosedError",
    "ConfigError",
    "ConnectFailed",
    "FairleadError",
    "HttpError",
    "InputNotGiven",
    "LocalProtocolError",
    "LocalResourceError",
    "LoginRequired",
    "MCPClientError",
    "MCPErrorCode",
    "MCPToolError",
    "NoAnswer",
    "OutputMismatch",
    "ProtocolError",
    "RemoteProtocolError",
    "RequestTimeout",
    "RetriesExhausted",
    "RpcError",
    "ServerBusy",
    "TransportError",
    "UrlElicitationRequired",
]


class ProtocolError(FairleadError):
    """Violation of a protocol rule. `code` is the matching JSON-RPC error code."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class LocalProtocolError(ProtocolError):
    """Call that the protocol does not allow in the current state: fix the call."""


class RemoteProtocolError(ProtocolError):
    """Protocol violation by the peer.

    `request_id` is set if an error response can be sent for it.
    """

    def __init__(self, message: str, *, code: int, request_id: int | str | None = None) -> None:
        super().__init__(message, code=code)
        self.request_id = request_id
        # id of the request that an unreadable response answers, if its start contains the id
        self.answers: int | str | None = None
        self.excerpt = ""  # start of an unreadable frame, for logs
        self.size = 0  # length of the unreadable frame in bytes
        self.frame = b""  # the complete frame, unless it exceeded the size limit
        self.content_type = ""  # content type of an HTTP response that is not a message


class RpcError(FairleadError):
    """JSON-RPC error received from the peer, or raised by a handler to refuse a request.

    `raw` contains the bytes of a received error object, so that a relay can forward it unchanged;
    `data` is decoded from `raw` on first access.
    """

    executed = False  # True if a server is known to have executed the `initialize` that it refused

    def __init__(
        self, code: int, message: str, data: Any = None, *, raw: bytes | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.raw = raw
        self._data = data

    @property
    def data(self) -> Any:
        if self._data is None and self.raw is not None:
            # Imported here, so that importing `fairlead.errors` needs no third-party library.
            import msgspec

            self._data = msgspec.json.decode(self.raw).get("data")
        return self._data

    def __str__(self) -> str:
        return f"MCP error {self.code}: {self.message}"


class TransportError(FairleadError):
    """Failed delivery. `delivered` is False if the peer certainly did not receive the request.

    `hint` tells the user how to correct the address or the server, if the cause is known. `public`
    is a phrase that `public_reason` uses if the attributes do not describe the failure. The phrase
    must not contain the server's output or configuration.
    """

    public: str = ""
    hint: str = ""

    def __init__(self, message: str, *, delivered: bool = True, public: str = "") -> None:
        super().__init__(message)
        self.delivered = delivered
        if public:
            self.public = public

    def __str__(self) -> str:
        text = str(self.args[0])
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class ConnectFailed(TransportError):
    """Failure to open a connection; no request was sent.

    `exit_code` and `stderr` are set if a process exited too early. `output` contains the first
    lines that the server wrote instead of messages. `retry_after` is the number of seconds after
    which another attempt may succeed, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        stderr: Sequence[str] = (),
        output: Sequence[str] = (),
        public: str = "",
        retry_after: float | None = None,
    ) -> None:
        if output:
            message += _OUTPUT
            self.hint = OUTPUT_HINT
        super().__init__(_with_last_words(message, stderr, output), delivered=False, public=public)
        self.summary = message
        self.exit_code = exit_code
        self.stderr = tuple(stderr)
        self.output = tuple(output)
        self.retry_after = retry_after


class ServerBusy(ConnectFailed):
    """All allowed connections to a server are in use; the server itself works.

    After `retry_after` seconds, a connection may be free.
    """

    def __init__(self, message: str, *, public: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, public=public, retry_after=retry_after)


class LocalResourceError(ConnectFailed):
    """Shortage on this machine that prevents a connection; the server may be fine.

    `resource` names what is missing: file descriptors, memory, threads, processes, local ports or
    disk space.
    """

    def __init__(self, message: str, resource: str) -> None:
        super().__init__(message, public=f"could not be reached: the gateway is out of {resource}")
        self.resource = resource


class HttpError(TransportError):
    """HTTP response that is not a protocol message: a status and its body.

    The names in `headers` are in lower case.
    """

    def __init__(self, status: int, body: str = "", headers: Mapping[str, str] | None = None):
        self.status = status
        self.body = body
        self.headers = headers or {}
        notes = "; ".join(
            f"{name}: {value}"
            for name in ("WWW-Authenticate", "Mcp-Auth-Server")
            if (value := self.headers.get(name.lower()))
        )
        text = f"HTTP {status}: {body.strip()[:500]}" + (f" [{notes}]" if notes else "")
        # Servers send these statuses before they process a request, so repeating it is safe.
        super().__init__(text, delivered=status not in (401, 403, 404, 405, 413, 415, 429, 503))
        self.summary = text

    @property
    def www_authenticate(self) -> str | None:
        """Return the authentication challenge of a 401 or 403 response."""
        return self.headers.get("www-authenticate")

    @property
    def mcp_auth_server(self) -> str | None:
        return self.headers.get("mcp-auth-server")

    @property
    def retry_after(self) -> float | None:
        """Return the seconds to wait from `Retry-After`; None if it is missing or a date."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if text.isdigit() else None


class AuthorizationError(TransportError):
    """OAuth did not yield a token that the server accepts; the request was not processed.

    `step` is one of discovery, registration, authorization, token, renewal and storage. `error` is
    the authorization server's error code, if it sent one. `temporary` is True if a later attempt
    may succeed without a change.
    """

    public = "requires authorization"

    def __init__(
        self,
        message: str,
        *,
        step: str,
        server: str = "",
        issuer: str = "",
        error: str = "",
        temporary: bool = False,
    ) -> None:
        super().__init__(message, delivered=False)
        self.step = step
        self.server = server
        self.issuer = issuer
        self.error = error
        self.temporary = temporary


class LoginRequired(AuthorizationError):
    """No usable login is stored, and this program cannot ask the user to log in.

    `remedy` is the command or call that starts a login. `scopes` are those that the stored login
    lacks, and `login_scopes` those that the next login should request. `endpoint` is the URL that
    the server names, if it has another path than the URL used.
    """

    public = "requires a login"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        server: str = "",
        issuer: str = "",
        scopes: Sequence[str] = (),
        login_scopes: Sequence[str] = (),
        endpoint: str = "",
    ) -> None:
        super().__init__(message, step="authorization", server=server, issuer=issuer)
        self.endpoint = endpoint
        self.remedy = remedy
        self.scopes = tuple(scopes)
        self.login_scopes = tuple(login_scopes)
        if self.scopes:
            self.public = f"requires a login with more scopes: {' '.join(self.scopes)}"

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.remedy}" if self.remedy else str(self.args[0])


class RequestTimeout(TransportError, TimeoutError):
    """No response arrived in time. If the request was sent, it was cancelled at the peer.

    `output` contains the lines that the server wrote meanwhile instead of messages.
    """

    def __init__(
        self,
        seconds: float,
        method: str = "",
        *,
        what: str = "Request",
        output: Sequence[str] = (),
    ) -> None:
        super().__init__(f"{what} timeout after {seconds * 1000:.0f}ms")
        self.seconds = seconds
        self.method = method
        self.output = tuple(output)
        self.summary = f"{self.args[0]} ({method})" if method else str(self.args[0])
        self.summary += _OUTPUT if output else ""

    def __str__(self) -> str:
        return _with_last_words(self.summary, (), self.output)


class NoAnswer(TransportError, ConnectionError):
    """A request's stream ended without a response and cannot be resumed (HTTP).

    `parts` are the content blocks received before the end, if the result was sent in parts.
    """

    def __init__(self, request_id: int | str, parts: Sequence[Any] = ()) -> None:
        super().__init__(f"No response received for request ID {request_id}")
        self.request_id = request_id
        self.parts = list(parts)


class ChannelClosed(TransportError, ConnectionError):
    """The connection ended. `exit_code` is negative for a signal, as in `subprocess`.

    `output` contains the last lines that an exited server wrote instead of messages.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delivered: bool = True,
        exit_code: int | None = None,
        stderr: Sequence[str] = (),
        output: Sequence[str] = (),
        public: str = "",
    ) -> None:
        text = f"Transport closed: {reason}" if reason else "Transport closed"
        text += _OUTPUT if output else ""
        last_words = _with_last_words(text, stderr, output)
        super().__init__(last_words, delivered=delivered, public=public)
        self.summary = text
        self.reason = reason
        self.exit_code = exit_code
        self.stderr = tuple(stderr)
        self.output = tuple(output)


class CannotAsk(FairleadError):
    """Input request to a client that did not declare `capability` or whose revision lacks it.

    A tool may catch this error and continue without the input. If the error is not caught, the
    client receives an error that names the missing capability.
    """

    def __init__(self, message: str, *, capability: str) -> None:
        super().__init__(message)
        self.capability = capability


class InputNotGiven(FairleadError):
    """Input request from a server that this client cannot answer; the call was not repeated.

    `method` is the input request's method, and `capability` the missing capability. If `capability`
    is None, the client has declared it, but the callback failed or declined; that failure is the
    cause.
    """

    def __init__(self, message: str, *, method: str, capability: str | None = None) -> None:
        super().__init__(message)
        self.method = method
        self.capability = capability


class UrlElicitationRequired(InputNotGiven, RpcError):
    """The server requires the user to visit pages first: show `pages`, then repeat the call.

    Each page has the params of an elicitation in URL mode: `url`, `message`, `elicitationId`.
    """

    def __init__(self, refusal: RpcError, why: str = "", *, capability: str | None = None) -> None:
        """Copy the server's error.

        `refusal` is the error as received; `why` explains why this client did not handle it.
        """
        # Without `super()`, because `InputNotGiven.__init__` would not pass a code to `RpcError`.
        RpcError.__init__(self, refusal.code, refusal.message, refusal.data, raw=refusal.raw)
        self.method = "elicitation/create"
        self.capability = capability
        self.why = why

    @property
    def pages(self) -> list[dict[str, Any]]:
        """Return the pages named by the server, without those that have no URL."""
        named = self.data.get("elicitations") if isinstance(self.data, Mapping) else None
        if not isinstance(named, list):
            return []
        return [
            page for page in named if isinstance(page, dict) and isinstance(page.get("url"), str)
        ]

    def __str__(self) -> str:
        urls = ", ".join(page["url"] for page in self.pages)
        visit = f" (visit {urls})" if urls else ""
        because = f": {self.why}" if self.why else ""
        return f"{super().__str__()}{visit}{because}"


class OutputMismatch(FairleadError):
    """Structured content that does not match the tool's output schema.

    `result` is the received result.
    """

    def __init__(self, tool: str, problem: str, result: dict[str, Any]) -> None:
        super().__init__(f"The result of {tool!r} does not match its outputSchema: {problem}")
        self.tool = tool
        self.result = result


class RetriesExhausted(TransportError):
    """All attempts failed; the last failure is the cause."""


class ConfigError(FairleadError):
    """Mistake in a file or entry. `path`, `line` and `column` locate it if they are known."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.line = line
        self.column = column

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else self.path
        return f"{where}: {self.args[0]}" if where else str(self.args[0])


class CircuitOpenError(FairleadError):
    """Call refused without an attempt, because earlier calls failed too often.

    `remaining` is the number of seconds to wait; 0 means that a trial call is running now.
    """

    def __init__(self, remaining: float, name: str = "") -> None:
        super().__init__(remaining, name)
        self.remaining = remaining
        self.name = name

    def __str__(self) -> str:
        what = f"{self.name} failed" if self.name else "The operation failed"
        when = f"in {self.remaining:.1f} s" if self.remaining else "soon"
        return f"{what} too often; calls are suspended, try again {when}"


_OUTPUT = "; the server wrote output that is not JSON-RPC"
OUTPUT_HINT = "a server must write only messages to stdout, and other output to stderr"

# Alternative names that `docs/requirements.md` prescribes.
MCPClientError = FairleadError
ClientClosedError = ChannelClosed


def _with_last_words(message: str, stderr: Sequence[str], output: Sequence[str] = ()) -> str:
    """Return the message, followed by the server's output and last stderr lines."""
    text = "\n  | ".join([f"{message}:", *output]) if output else message
    if not stderr:
        return text
    return "\n  | ".join([text + ("\n" if output else ". ") + "Last lines on stderr:", *stderr])
