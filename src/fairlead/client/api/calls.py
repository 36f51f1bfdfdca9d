"""Client methods that return results as dicts. The typed methods are in `TypedCallMixin`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Never, overload

from msgspec import Raw

from ...errors import (
    ChannelClosed,
    HttpError,
    LocalProtocolError,
    MCPToolError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
    UrlElicitationRequired,
)
from ...peer import OnProgress
from ...protocol.contracts import make_tool_error, validate_tool_response
from ...wire import RequestId, to_json
from ...wire.error_codes import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR
from ...wire.quote_text import quoted
from ..client_config import MCPClientConfig
from ..connection.reconnect import Reconnector
from ..input.answers import InputCallbacks
from ..input.url_elicitation import UrlElicitations
from ..mcp_transport.channel_transport import ChannelTransport, with_headers
from .lists import ListMixin, read_result, require_uri
from .typed_results import ResultDict, ToolCallResult, tool_error

__all__ = ["CallMixin", "unknown_keyword"]

_Ask = Callable[[dict[str, Any]], Awaitable[Raw]]  # sends the request with these params


class CallMixin(ListMixin):
    """The client methods that call tools and read resources and prompts.

    The server's requests for input are answered during a call.
    """

    def __init__(
        self, transport: ChannelTransport, config: MCPClientConfig, keeper: Reconnector
    ) -> None:
        super().__init__(transport, config, keeper)
        self._answers = InputCallbacks()
        self._visits = UrlElicitations(
            self._answers, limit=config.max_rounds, input_timeout=config.input_timeout
        )

    async def list_tools(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Return all tools from all pages. Invalid items are skipped and added to `skipped`."""
        tools = await self._list("tools/list", "tools", cache)
        self.learn_tools(tools)
        return tools

    def learn_tools(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Replace the stored properties of tools, such as output schemas, with those of `tools`."""
        self._known.forget()
        self._known.learn(tools)

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        errors: Literal["raise"] = "raise",
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
        rounds: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> ToolCallResult: ...

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        errors: Literal["envelope"],
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
        rounds: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]: ...

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        errors: Literal["raise", "envelope"] = "raise",
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
        rounds: bool = True,
        headers: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> dict[str, Any]:
        """Call a tool and return its result, even if `isError` is set.

        The result is a dict with the attributes `data`, `text` and `is_error`. Its method
        `raise_for_error()` raises `MCPToolError` if the tool failed.

        With `errors="envelope"`, return the complete JSON-RPC response; failures of the transport
        (timeouts, lost connections) become synthetic error responses. With `retry=True`, repeat the
        call after a failure, even if the server may have received it. With `rounds=False`, return a
        request for input instead of answering it. `headers` are sent with this call (HTTP only).

        Raises:
            InputNotGiven: The server requested input that this client cannot provide.
            UrlElicitationRequired: The server requires the user to visit pages, and the user did
                not visit them.
            OutputMismatch: The result does not match the tool's listed output schema.
            RemoteProtocolError: The result is not a valid tool result; with `strict` only.
            TypeError: An argument has another type.
        """
        if unknown:
            raise unknown_keyword("call_tool", unknown)
        if type(name) is not str or type(arguments) is not dict or timeout is not None:
            _check_call(name, arguments, timeout)
        if errors == "envelope":
            return await _enveloped(
                partial(
                    self.call_tool,
                    name,
                    arguments,
                    timeout,
                    on_progress=on_progress,
                    retry=retry,
                    rounds=rounds,
                    headers=headers,
                )
            )
        if headers:
            on_sent = with_headers(lambda: self.transport, headers, on_sent)
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        try:
            raw = await self.request(
                "tools/call",
                params,
                timeout=timeout,
                on_progress=on_progress,
                on_sent=on_sent,
                retry=retry,
            )
        except UrlElicitationRequired as exc:
            if not rounds:
                raise
            ask = self._ask_again(timeout, on_progress, on_sent, retry)
            raw = await self._visit(exc, partial(ask, params))
        except RpcError as exc:
            if exc.code != HEADER_MISMATCH or not self._mirrors:
                raise
            await self._learn_headers()
            raw = await self._ask_again(timeout, on_progress, on_sent, retry)(params)
        result = read_result(raw)
        if result.get("resultType") == "input_required" and rounds:
            ask = self._ask_again(timeout, on_progress, on_sent, retry)
            result = await self._rounds("tools/call", params, raw, ask)
        if self._cache is not None:
            self._cache.expire_stale()
        if self.config.strict:
            _check_contract(name, result)
        if self._known.schemas and self.config.validate_output:
            self._check_output(name, result)
        return ToolCallResult(result)

    def _ask_again(
        self,
        timeout: float | None,
        on_progress: OnProgress | None,
        on_sent: Callable[[RequestId], None] | None,
        retry: bool | None,
    ) -> _Ask:
        """Return a function that repeats the `tools/call` with other params.

        It is created only for calls that are repeated after input rounds or page visits.
        """
        return partial(
            self.request,
            "tools/call",
            timeout=timeout,
            on_progress=on_progress,
            on_sent=on_sent,
            retry=retry,
        )

    @staticmethod
    def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
        """Return the structured error in a tool result, or None."""
        return tool_error(result)

    async def list_resources(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Return all resources."""
        return await self._list("resources/list", "resources", cache)

    async def list_resource_templates(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Return all resource URI templates."""
        return await self._list("resources/templates/list", "resourceTemplates", cache)

    async def read_resource(
        self, uri: str, *, cache: bool = True, rounds: bool = True
    ) -> dict[str, Any]:
        """Return the contents of a resource.

        With `rounds=False`, return a request for input instead of answering it.
        """
        require_uri(uri)
        params = {"uri": uri}
        reading = self._read("resources/read", params, cache)
        return ResultDict(await self._finished("resources/read", params, reading, rounds))

    async def list_prompts(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """Return all prompts."""
        return await self._list("prompts/list", "prompts", cache)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, rounds: bool = True
    ) -> dict[str, Any]:
        """Return a prompt with its arguments substituted.

        The protocol has only strings as arguments; other values are sent as JSON text. `rounds`
        works as in `read_resource`.
        """
        _check_call(name, arguments)
        params = {"name": name, "arguments": _texts(arguments or {})}
        request = self.request("prompts/get", params)
        return ResultDict(await self._finished("prompts/get", params, request, rounds))

    # Private

    async def _finished(
        self, method: str, params: dict[str, Any], first: Awaitable[Raw], rounds: bool
    ) -> dict[str, Any]:
        """Return the final result, after all input requests and page visits."""
        try:
            raw = await first
        except UrlElicitationRequired as exc:
            if not rounds:
                raise
            raw = await self._visit(exc, partial(self.request, method, params))
        result = read_result(raw)
        if result.get("resultType") == "input_required" and rounds:
            return await self._rounds(method, params, raw, partial(self.request, method))
        return result

    async def _rounds(
        self, method: str, params: dict[str, Any], first: Raw, ask: _Ask
    ) -> dict[str, Any]:
        # Imported when a server requests input for the first time.
        from ..input.rounds import ClientInputRounds

        config = self.config
        rounds = ClientInputRounds(
            self._answers,
            limit=config.max_rounds,
            input_timeout=config.input_timeout,
            max_total=config.max_total_seconds,
        )
        finished = rounds.finish(method, params, first, ask)
        return read_result(await self._reconnector.run_until_closed(finished))

    async def _visit(
        self, refusal: UrlElicitationRequired, ask: Callable[[], Awaitable[Raw]]
    ) -> Raw:
        return await self._reconnector.run_until_closed(self._visits.finish(refusal, ask))

    async def _learn_headers(self) -> None:
        """List the tools after a call was rejected because of missing or wrong headers.

        The server did not execute the call.
        """
        if self._cache is not None:
            self._cache.heard("notifications/tools/list_changed", {})
        await self.list_tools()

    def _check_output(self, tool: str, result: dict[str, Any]) -> None:
        if result.get("resultType", "complete") == "complete":
            self._known.check(tool, result)


def unknown_keyword(method: str, given: Iterable[str]) -> TypeError:
    """Return the error for unknown keyword arguments of a method that calls a tool."""
    # Loaded on first use: only errors need them.
    from ..client_migration_hints import CALL_HINTS

    name = next(iter(given))
    hint = CALL_HINTS.get(name, "pass the arguments of the tool as a dict")
    return TypeError(f"{method}() got an unexpected keyword argument {name!r}: {hint}")


def _check_call(name: object, arguments: object, timeout: object = None) -> None:
    """Check the arguments of a call.

    Raises:
        TypeError: One of them has another type.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, not {quoted(name)}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"arguments must be a dict, not {quoted(arguments)}")
    if timeout is not None and not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds, not {quoted(timeout)}")


def _texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else to_json(value).decode()
        for name, value in arguments.items()
    }


async def _enveloped(call: Callable[..., Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Return the complete response to a call.

    A transport failure is returned as an error response.
    """
    ids: list[RequestId] = []
    try:
        result = await call(on_sent=ids.append)
        return {"jsonrpc": "2.0", "id": ids[-1], "result": result}
    except RpcError as exc:
        error = {"code": exc.code, "message": exc.message}
        if exc.data is not None:
            error["data"] = exc.data
        return {"jsonrpc": "2.0", "id": ids[-1] if ids else 0, "error": error}
    except RequestTimeout as exc:
        return make_tool_error(ids[-1] if ids else 0, 408, str(exc), kind="timeout")
    except HttpError as exc:
        return make_tool_error(ids[-1] if ids else 0, exc.status, str(exc), kind="http")
    except RemoteProtocolError as exc:
        return make_tool_error(ids[-1] if ids else 0, PARSE_ERROR, str(exc), kind="parse")
    except (ChannelClosed, NoAnswer, RetriesExhausted, LocalProtocolError) as exc:
        return make_tool_error(ids[-1] if ids else 0, 499, str(exc), kind="closed")


def _check_contract(tool: str, result: dict[str, Any]) -> None:
    """Raise an error if a result is not a valid tool response.

    Received results are accepted unchanged unless `strict` is set (DEC-14).
    """
    if result.get("resultType", "complete") != "complete":
        return
    checked = validate_tool_response({"jsonrpc": "2.0", "id": 1, "result": result})
    if not checked.ok:
        why = f"{tool} returned an invalid result: {'; '.join(checked.problems)}"
        raise RemoteProtocolError(why, code=INVALID_REQUEST)
