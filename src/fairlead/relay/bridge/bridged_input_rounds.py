"""Input rounds of a stateless server, for a client of the handshake era.

The server's input requests arrive in its result, and the relay sends them to the client as
requests. Meanwhile the client's own request stays open. The client never receives `requestState`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...errors import FairleadError, RpcError
from ...interceptor import Answer, Exchange
from ...protocol.caller import has_capability, needed_capability, nested_capability
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.downgrade.params import downgrade_params
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.own_errors import own_error
from ...protocol.public_reason import public_reason
from ...upstream.connection.relayed_call import RelayedCall
from ...wire import Notification, Request
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY

if TYPE_CHECKING:
    from ...upstream.connection.upstream_connection import UpstreamConnection

__all__ = ["BridgedInputRounds", "kind_of", "requests_input"]

MAX_ROUNDS: Final = 20  # maximum number of rounds of questions for one call
# seconds of the first and the longest pause before a retry without input
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
PATIENCE: Final = 600.0  # maximum seconds of pauses before retries without input


class _Kind(Struct, rename="camel"):
    result_type: str = "complete"


class _Wanted(Struct, rename="camel"):
    input_requests: dict[str, Raw] = {}
    request_state: Raw | UnsetType = msgspec.UNSET


def kind_of(result: Raw) -> str:
    """Return the `resultType` of a result; `malformed` if it is not a string."""
    # Most results have no `resultType`, and searching the bytes is cheaper than decoding.
    if b'"resultType"' not in bytes(result):
        return "complete"
    try:
        return msgspec.json.decode(result, type=_Kind).result_type
    except msgspec.ValidationError:
        return "malformed"
    # JSON that cannot be decoded here is forwarded to the client unchanged.
    except (msgspec.DecodeError, RecursionError):
        return "complete"


def requests_input(result: Raw) -> bool:
    """Return True if a result is a request for input.

    Raises:
        RpcError: The result has an unknown type.
    """
    kind = kind_of(result)
    if kind not in ("complete", "input_required"):
        raise own_error(INTERNAL_ERROR, f"Unknown resultType in the server's result: {kind!r}")
    return kind == "input_required"


class BridgedInputRounds:
    """The input rounds of one request, until the server returns a complete result."""

    def __init__(self, call: RelayedCall, connection: "UpstreamConnection") -> None:
        self._call = call
        self._connection = connection
        self._visited: set[str] = set()  # URLs of pages that the user has agreed to visit
        self._visits: list[str] = []  # ids that the relay created for these visits

    async def finish(self, result: Raw, again: Callable[[RawMembers], Awaitable[Raw]]) -> Raw:
        """Return the complete result. `again` sends the request with additional params.

        Raises:
            RpcError: The client refused an input request, or the server requests input too often.
        """
        pause, waited, rounds = FIRST_PAUSE, 0.0, 0
        while rounds < MAX_ROUNDS:
            wanted = _read(result)
            added: RawMembers = {}
            quiet = bool(wanted.input_requests) and self._only_known_visits(wanted)
            if wanted.input_requests:
                with self._connection.goes_on(self._call):
                    given = await self._collect(wanted.input_requests)
                added["inputResponses"] = encoded(given)
            if not isinstance(wanted.request_state, UnsetType):
                added["requestState"] = wanted.request_state
            # A result without new input requests only requests a retry and is not a round.
            if quiet or not wanted.input_requests:
                if waited > PATIENCE:
                    break
                await asyncio.sleep(pause)
                waited += pause
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                rounds += 1
            result = await again(added)
            if not requests_input(result):
                await self._tell_completed()
                return result
        raise own_error(
            INTERNAL_ERROR,
            f"The server still requests input after {MAX_ROUNDS} rounds or {PATIENCE:.0f} s",
        )

    async def _tell_completed(self) -> None:
        """Notify the client that its visits to pages are complete."""
        call, connection = self._call, self._connection
        # Other revisions have no visit ids and no such notification.
        if not self._visits or not call.exchange.caller.revision.elicitation_ids:
            return
        with connection.goes_on(call):
            for visit in self._visits:
                params = encoded({"elicitationId": visit})
                note = Notification("notifications/elicitation/complete", params)
                connection.passage.put(note, connection.peer, call.tell, call.sent_as)
            await connection.passage.passed()

    def _only_known_visits(self, wanted: _Wanted) -> bool:
        """Return True if all input requests are for pages that the user has visited already.

        The server then waits for the effect of these visits.
        """
        addresses = [_url(raw) for raw in wanted.input_requests.values()]
        return all(url is not None and url in self._visited for url in addresses)

    async def _collect(self, questions: dict[str, Raw]) -> dict[str, Raw]:
        """Send all input requests concurrently. If one is refused, cancel the others."""
        tasks = [asyncio.ensure_future(self._ask(key, raw)) for key, raw in questions.items()]
        try:
            given = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return dict(zip(questions, given, strict=True))

    async def _ask(self, key: str, question: Raw) -> Raw:
        members = members_of(question) or {}
        method = string_of(members.get("method")) or ""
        exchange = self._call.exchange
        url = _url(question)
        capability = needed_capability(method, None if url is None else "url")
        if capability is None or not has_capability(exchange.caller.declared, capability):
            raise _cannot(exchange, method, capability or method)
        # The user has agreed to visit this page already and is not asked again.
        if url is not None and url in self._visited:
            return Raw(b'{"action":"accept"}')
        params = members.get("params", Raw(b"{}"))
        if url is not None:
            params, visit = _with_id(params)
            self._visits.append(visit)
        # Raises an error before the interceptors see a request that this client cannot receive.
        self._worded(method, params)
        request = Request(f"{self._call.sent_as}/{key}", method, params)
        try:
            given = await self._connection.asked_inside(self._call, request, self._bring)
        except RpcError:
            if method != "elicitation/create":
                # Only elicitation has a result for a refusal; other refusals end the call.
                raise
            return Raw(b'{"action":"cancel"}')
        except FairleadError as exc:
            why = f"{method} was not answered: the client {public_reason(exc)}"
            raise own_error(INTERNAL_ERROR, why) from exc
        answer = Raw(b"{}" if given is None else given)
        if url is not None and string_of((members_of(answer) or {}).get("action")) == "accept":
            self._visited.add(url)
        return answer

    async def _bring(self, asked: Exchange) -> Answer:
        """Send an input request to the client, adapted to its revision."""
        exchange, params = self._call.exchange, asked.message.params
        if isinstance(params, UnsetType):
            params = Raw(b"{}")
        return await exchange.edge.request_caller(
            exchange,
            asked.method,
            self._worded(asked.method, params),
            timeout=self._connection.settings().input_timeout,
        )

    def _worded(self, method: str, params: Raw) -> Raw:
        """Return params adapted to the revision of the client.

        Raises:
            RpcError: The request has no equivalent in the client's revision.
        """
        try:
            return downgrade_params(method, params, self._call.exchange.caller.revision)
        except DowngradeError as exc:
            raise own_error(
                METHOD_NOT_FOUND, f"{method} cannot be sent to this client: {exc}"
            ) from exc


def _cannot(exchange: Exchange, method: str, capability: str) -> RpcError:
    return RpcError(
        MISSING_CAPABILITY,
        f"{exchange.method} requires a response to {method}, but the client did not declare the "
        f"capability {capability!r}",
        {"source": "proxy", "requiredCapabilities": nested_capability(capability)},
    )


def _read(result: Raw) -> _Wanted:
    try:
        return msgspec.json.decode(result, type=_Wanted)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise own_error(
            INTERNAL_ERROR, f"The server's request for input is malformed: {exc}"
        ) from exc


def _url(question: Raw) -> str | None:
    """Return the URL of a page that an input request asks the user to visit, or None."""
    params = members_of((members_of(question) or {}).get("params")) or {}
    return string_of(params.get("url")) if string_of(params.get("mode")) == "url" else None


def _with_id(params: Raw) -> tuple[Raw, str]:
    """Return params with a new id for the visit, and the id. Revision 2025-11-25 requires one."""
    members = members_of(params) or {}
    visit = token_hex(16)
    members["elicitationId"] = encoded(visit)
    return encoded(members), visit
