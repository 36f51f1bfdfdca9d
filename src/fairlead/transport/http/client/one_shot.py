"""Single JSON-RPC calls over HTTP without a client object."""

import logging
from collections.abc import Mapping
from typing import Any

from ....errors import RemoteProtocolError, RequestTimeout
from ....protocol.headers import SESSION_ID
from ....redaction.redact_text import redact
from ....wire import MAX_MESSAGE, to_json
from ....wire.error_codes import PARSE_ERROR
from ....wire.json import read_json
from ....wire.sse import Event, EventParser
from ... import timeouts
from .http1.http_client import HttpClient, HttpResponse
from .http1.url import EndpointUrl
from .request_headers import RequestHeaders

__all__ = ["OneShotResponse", "call_mcp"]

log = logging.getLogger("fairlead.transport")


class OneShotResponse(dict[str, Any]):
    """JSON-RPC envelope as received.

    `session_id` is the id that the server assigned or the caller passed.
    """

    session_id: str | None = None


async def call_mcp(
    url: str,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    timeout: float = 60.0,
    headers: Mapping[str, str] | None = None,
    session_id: str | None = None,
) -> OneShotResponse:
    """POST one request and return the raw JSON-RPC envelope, with a result or an error.

    Raises:
        HttpError: The status is not 2xx; the text is `MCP request failed: <status> <reason>`.
        RemoteProtocolError: The body is not JSON, or an event stream contains no response.
        RequestTimeout: No response arrived within `timeout` seconds (0: no limit).
        ConnectFailed: The server cannot be reached.
        ChannelClosed: The connection broke.
        ConfigError: The URL cannot be used.
    """
    address = EndpointUrl.parse(url)
    heading = RequestHeaders(headers, address.authorization)
    heading.opened(session_id, None)
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        request["params"] = params
    log.debug("%s to %s", method, redact(url))
    door = HttpClient(address)
    try:
        async with timeouts.timeout(timeout or None):
            reply = await door.open("POST", heading.post, to_json(request))
            if not reply.ok:
                error, _ = await reply.refusal()
                # Callers expect this text instead of the default text of `HttpError`.
                error.args = (f"MCP request failed: {reply.status} {reply.reason}",)
                raise error
            answer = OneShotResponse(await _envelope(reply))
    except TimeoutError as exc:
        raise RequestTimeout(timeout, method) from exc
    finally:
        await door.close()
    answer.session_id = reply.header(SESSION_ID) or session_id
    return answer


async def _envelope(reply: HttpResponse) -> dict[str, Any]:
    """Return the response from a body, or the first response in an event stream."""
    if not reply.streams:
        value = read_json(await reply.read(MAX_MESSAGE), dict[str, Any], None)
        if value is not None:
            return value
    else:
        parser = EventParser()
        while chunk := await reply.chunk():
            for event in parser.feed(chunk):
                data = event.data if isinstance(event, Event) else None
                value = read_json(data, dict[str, Any], None)
                if value is not None and ("result" in value or "error" in value):
                    return value
    raise RemoteProtocolError("Failed to parse MCP response", code=PARSE_ERROR)
