"""Everything Fairlead raises, told apart by what the caller does next.

    FairleadError                 catch-all; MCPClientError is another name for it
    ├── ProtocolError             a rule of the protocol was broken: .code
    │   ├── LocalProtocolError    by us: fix the call
    │   └── RemoteProtocolError   by the peer, unreadable input included: answer it, or hang up
    ├── RpcError                  the peer said no: .code .message .data
    ├── TransportError            retry or give up; .delivered says which is safe
    │   ├── ConnectFailed         nothing was sent
    │   │   ├── ServerBusy        too many connections are in use: try again later
    │   │   └── LocalResourceError    this machine has none left: .resource
    │   ├── HttpError             .status .body .headers .retry_after .www_authenticate
    │   ├── RequestTimeout        also a TimeoutError
    │   ├── NoAnswer              also a ConnectionError: .request_id .parts
    │   ├── ChannelClosed         also a ConnectionError: .exit_code .stderr (ClientClosedError)
    │   └── RetriesExhausted      the last cause is chained
    ├── CannotAsk                 the caller's side cannot be asked: .capability
    ├── InputNotGiven             a server asked what we cannot answer: .method .capability
    │   └── UrlElicitationRequired    also an RpcError; visit .pages, then call again
    ├── OutputMismatch            a result does not fit the tool's schema: .tool .result
    ├── ConfigError               fix a file: .path .line
    ├── CircuitOpenError          not tried, it failed too often: wait .remaining seconds
    └── MCPToolError              a tool may raise it; it becomes that tool's result

Facts are attributes; `__str__` makes the sentence, for the owner of a server: it may quote what the
server printed and name its command. `protocol/public_reason.py` makes the one for the clients of a
gateway.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

__all__ = [
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


class FairleadError(Exception):
    """The root of the tree: `except FairleadError` catches every failure of a call."""

    summary: str = ""  # the sentence alone, where the text also quotes what a server printed


class ProtocolError(FairleadError):
    """A rule of the protocol was broken. `code` is the JSON-RPC code that names it."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class LocalProtocolError(ProtocolError):
    """We asked for something the protocol does not allow now: fix the call."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule. `request_id` is set when an answer can be addressed to a request."""

    def __init__(self, message: str, *, code: int, request_id: int | str | None = None) -> None:
        super().__init__(message, code=code)
        self.request_id = request_id
        self.answers: int | str | None = None  # of an unreadable answer: the request it is for
        self.excerpt = ""  # of an unreadable frame: how it began
        self.size = 0  # and how long it was
        self.frame = b""  # all of it, where it was read


class RpcError(FairleadError):
    """A JSON-RPC error: received from the peer, or raised by a handler to refuse a request.

    `raw` holds the error object's own bytes when it came over the wire, so that a relay can pass
    it on unchanged; `data` is decoded from it when somebody asks.
    """

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
            import msgspec  # only here, so that the tree itself stands alone

            self._data = msgspec.json.decode(self.raw).get("data")
        return self._data

    def __str__(self) -> str:
        return f"MCP error {self.code}: {self.message}"


class TransportError(FairleadError):
    """Delivery failed. `delivered` is False when the peer certainly never saw the request.

    `public` is a phrase for `public_reason`, where the facts do not say enough. It must not contain
    anything that the server printed or that its configuration says.
    """

    public: str = ""

    def __init__(self, message: str, *, delivered: bool = True, public: str = "") -> None:
        super().__init__(message)
        self.delivered = delivered
        if public:
            self.public = public


class ConnectFailed(TransportError):
    """No connection came about, so nothing was sent.

    `command` or `address` names what could not be reached; `exit_code` and `stderr` are set when a
    process was started and ended too early.
    """

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        stderr: Sequence[str] = (),
        public: str = "",
    ) -> None:
        super().__init__(_with_last_words(message, stderr), delivered=False, public=public)
        self.summary = message
        self.exit_code = exit_code
        self.stderr = tuple(stderr)


class ServerBusy(ConnectFailed):
    """All connections that may be open to a server are in use; the server itself is well.

    `retry_after` is the number of seconds after which one of them may be closed.
    """

    def __init__(self, message: str, *, public: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, public=public)
        self.retry_after = retry_after


class LocalResourceError(ConnectFailed):
    """This machine ran out of something that a connection needs; the server may be well.

    `resource` names it: file descriptors, memory, threads, processes, local ports, disk space.
    """

    def __init__(self, message: str, resource: str) -> None:
        super().__init__(message, public=f"could not be reached: the gateway is out of {resource}")
        self.resource = resource


class HttpError(TransportError):
    """An HTTP answer that is none of the protocol: a status, and whatever text came with it.

    `headers` has lower-case names.
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
        super().__init__(text, delivered=status not in (401, 403, 404, 405, 413, 415, 429, 503))

    @property
    def www_authenticate(self) -> str | None:
        """How the server wants to be convinced, after a 401 or 403."""
        return self.headers.get("www-authenticate")

    @property
    def mcp_auth_server(self) -> str | None:
        return self.headers.get("mcp-auth-server")

    @property
    def retry_after(self) -> float | None:
        """Seconds the server wants us to wait, if it said so as a number."""
        text = self.headers.get("retry-after", "").strip()
        return float(text) if text.isdigit() else None


class RequestTimeout(TransportError, TimeoutError):
    """No answer in time. The peer was told that nobody waits any more."""

    def __init__(self, seconds: float, method: str = "", *, what: str = "Request") -> None:
        super().__init__(f"{what} timeout after {seconds * 1000:.0f}ms")
        self.seconds = seconds
        self.method = method

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.method})" if self.method else str(self.args[0])


class NoAnswer(TransportError, ConnectionError):
    """The stream of a request ended without its answer, and cannot be taken up again (HTTP).

    `parts` are the content blocks that came before, where a result comes in parts.
    """

    def __init__(self, request_id: int | str, parts: Sequence[Any] = ()) -> None:
        super().__init__(f"No response received for request ID {request_id}")
        self.request_id = request_id
        self.parts = list(parts)


class ChannelClosed(TransportError, ConnectionError):
    """The connection has ended. `exit_code` is negative for a signal, as in `subprocess`."""

    def __init__(
        self,
        reason: str = "",
        *,
        delivered: bool = True,
        exit_code: int | None = None,
        stderr: Sequence[str] = (),
        public: str = "",
    ) -> None:
        text = f"Transport closed: {reason}" if reason else "Transport closed"
        super().__init__(_with_last_words(text, stderr), delivered=delivered, public=public)
        self.summary = text
        self.reason = reason
        self.exit_code = exit_code
        self.stderr = tuple(stderr)


class CannotAsk(FairleadError):
    """The caller's side cannot be asked: it did not declare `capability`, or is too old for it.

    A tool may catch it and go on without; uncaught, the caller is told what is missing.
    """

    def __init__(self, message: str, *, capability: str) -> None:
        super().__init__(message)
        self.capability = capability


class InputNotGiven(FairleadError):
    """The server needs an answer that we cannot give, so its request was not repeated.

    `method` is what it asked, `capability` what this client would have to offer (None if it has
    it, but the callback failed or refused; then that is the cause).
    """

    def __init__(self, message: str, *, method: str, capability: str | None = None) -> None:
        super().__init__(message)
        self.method = method
        self.capability = capability


class UrlElicitationRequired(InputNotGiven, RpcError):
    """The server wants the user to visit pages first: show `pages`, then make the call again.

    Each page is the params of an elicitation in URL mode: `url`, `message`, `elicitationId`.
    """

    def __init__(self, refusal: RpcError, why: str = "", *, capability: str | None = None) -> None:
        """`refusal` is the error as it came; `why` says what became of it on our side."""
        RpcError.__init__(self, refusal.code, refusal.message, refusal.data, raw=refusal.raw)
        self.method = "elicitation/create"
        self.capability = capability
        self.why = why

    @property
    def pages(self) -> list[dict[str, Any]]:
        """The pages that the server named and that we can read."""
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
    """A tool's structured content does not fit the schema that its server gave for it.

    `result` is what came nevertheless.
    """

    def __init__(self, tool: str, problem: str, result: dict[str, Any]) -> None:
        super().__init__(f"The result of {tool!r} does not fit its outputSchema: {problem}")
        self.tool = tool
        self.result = result


class RetriesExhausted(TransportError):
    """Every attempt failed; the last failure is the cause."""


class ConfigError(FairleadError):
    """A file or an entry is wrong: `path`, `line` and `column` say where, as far as it is known."""

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
    """Nothing was tried, because it failed too often before: wait `remaining` seconds.

    0 means that others are trying it at the moment.
    """

    def __init__(self, remaining: float, name: str = "") -> None:
        super().__init__(remaining, name)
        self.remaining = remaining
        self.name = name

    def __str__(self) -> str:
        what = f"{self.name} failed" if self.name else "It failed"
        when = f"in {self.remaining:.1f} s" if self.remaining else "soon"
        return f"{what} too often and is not tried now; try again {when}"


class MCPErrorCode(StrEnum):
    """Why a tool call failed, in one word."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    TIMEOUT = "TIMEOUT"
    NOT_FOUND = "NOT_FOUND"
    RATE_LIMITED = "RATE_LIMITED"
    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    DEPENDENCY_MISSING = "DEPENDENCY_MISSING"
    ACCESS_DENIED = "ACCESS_DENIED"
    INTERNAL = "INTERNAL"


class MCPToolError(FairleadError):
    """A tool failed in a way its caller should read.

    Raised by a tool, it becomes that tool's result.
    """

    def __init__(
        self,
        message: str,
        *,
        code: MCPErrorCode | str = MCPErrorCode.EXECUTION_ERROR,
        correlation_id: str | None = None,
        tool_name: str | None = None,
        module: str | None = None,
        field_errors: Sequence[Mapping[str, Any]] | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = MCPErrorCode(code)
        self.correlation_id = correlation_id
        self.tool_name = tool_name
        self.module = module
        self.field_errors = [dict(error) for error in field_errors] if field_errors else None
        self.suggestion = suggestion

    def to_dict(self) -> dict[str, Any]:
        """As it goes over the wire; what is not set is left out."""
        facts: dict[str, Any] = {
            "code": self.code.value,
            "message": self.message,
            "correlation_id": self.correlation_id,
            "tool_name": self.tool_name,
            "module": self.module,
            "field_errors": self.field_errors,
            "suggestion": self.suggestion,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def to_json(self) -> str:
        """The same as text."""
        import json  # only here, so that the tree itself stands alone

        return json.dumps(self.to_dict(), ensure_ascii=False, default=str)

    def to_mcp_response(self) -> dict[str, Any]:
        """As the result of a `tools/call`."""
        return {"content": [{"type": "text", "text": self.to_json()}], "isError": True}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "MCPToolError":
        """The opposite of `to_dict`. Raises `ValueError` if these are no such facts."""
        try:
            known = {key: facts[key] for key in facts if key in _TOOL_ERROR_KEYS}
            return cls(known.pop("message"), **known)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not a tool error: {exc}") from exc

    @classmethod
    def from_json(cls, text: str | bytes) -> "MCPToolError":
        """The opposite of `to_json`. Raises `ValueError` if it is no such text."""
        import json

        return cls.from_dict(json.loads(text))

    @classmethod
    def from_mcp_response(cls, result: Mapping[str, Any]) -> "MCPToolError":
        """The opposite of `to_mcp_response`. Raises `ValueError` for any other result."""
        try:
            failed, text = result.get("isError"), result["content"][0]["text"]
        except (AttributeError, KeyError, IndexError, TypeError) as exc:
            raise ValueError("not the result of a tool that failed") from exc
        if failed is not True or not isinstance(text, str):
            raise ValueError("not the result of a tool that failed")
        return cls.from_json(text)


_TOOL_ERROR_KEYS = frozenset(
    ("code", "message", "correlation_id", "tool_name", "module", "field_errors", "suggestion")
)

# The names under which the requirements know two of them.
MCPClientError = FairleadError
ClientClosedError = ChannelClosed


def _with_last_words(message: str, stderr: Sequence[str]) -> str:
    """The sentence, followed by the last lines that the process wrote to stderr."""
    if not stderr:
        return message
    return "\n".join([f"{message}. Its last words on stderr:", *(f"  | {line}" for line in stderr)])
