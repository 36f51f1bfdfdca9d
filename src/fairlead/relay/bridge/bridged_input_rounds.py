"""A stateless server asks back inside its result; a client with a handshake is asked for real.

The client's own request stays open all the while, and `requestState` never reaches it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...errors import FairleadError, RpcError
from ...interceptor import Answer, Exchange
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.downgrade.params import downgrade_params
from ...protocol.json_edit import RawMembers, encoded, members_of, string_of
from ...protocol.methods import has_capability, nested_capability
from ...protocol.own_errors import own_error
from ...protocol.public_reason import public_reason
from ...upstream.connection.relayed_call import RelayedCall
from ...wire import Notification, Request
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY

if TYPE_CHECKING:
    from ...upstream.connection.upstream_connection import UpstreamConnection

__all__ = ["RESULT_TYPE", "BridgedInputRounds", "kind_of"]

RESULT_TYPE: Final = b'"resultType"'
MAX_ROUNDS: Final = 20
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds before a retry that the server asked for
PATIENCE: Final = 600.0  # seconds for somebody who visits a page

_NEEDS: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class _Kind(Struct, rename="camel"):
    result_type: str = "complete"


class _Wanted(Struct, rename="camel"):
    input_requests: dict[str, Raw] = {}
    request_state: Raw | UnsetType = msgspec.UNSET


def kind_of(result: Raw) -> str:
    """`complete`, `input_required`, or whatever else a result says it is."""
    if RESULT_TYPE not in bytes(result):
        return "complete"
    try:
        return msgspec.json.decode(result, type=_Kind).result_type
    except msgspec.ValidationError:
        return "malformed"
    except (msgspec.DecodeError, RecursionError):
        return "complete"


class BridgedInputRounds:
    """Goes on with one request until the server knows everything."""

    def __init__(self, call: RelayedCall, connection: "UpstreamConnection") -> None:
        self._call = call
        self._connection = connection
        self._visited: set[str] = set()  # addresses that the user has been sent to
        self._visits: list[str] = []  # and the ids of those visits

    async def finish(self, result: Raw, again: Callable[[RawMembers], Awaitable[Raw]]) -> Raw:
        """The final result. `again` sends the request with more members in its params.

        Raises:
            RpcError: the client said no, or the server asks without end.
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
            kind = kind_of(result)
            if kind == "complete":
                await self._tell_completed()
                return result
            if kind != "input_required":
                raise own_error(
                    INTERNAL_ERROR, f"The server's result is of an unknown type: {kind}"
                )
        raise own_error(INTERNAL_ERROR, "The server asks without end")

    async def _tell_completed(self) -> None:
        """The pages that the user was sent to have done their work, so a client can say so."""
        call, connection = self._call, self._connection
        if not self._visits or not call.exchange.caller.revision.elicitation_ids:
            return
        with connection.goes_on(call):
            for visit in self._visits:
                params = encoded({"elicitationId": visit})
                note = Notification("notifications/elicitation/complete", params)
                connection.passage.put(note, connection.peer, call.tell, call.sent_as)
            await connection.passage.passed()

    def _only_known_visits(self, wanted: _Wanted) -> bool:
        """Whether it only asks for pages that the user has been sent to: then it waits for them."""
        addresses = [_url(raw) for raw in wanted.input_requests.values()]
        return all(url is not None and url in self._visited for url in addresses)

    async def _collect(self, questions: dict[str, Raw]) -> dict[str, Raw]:
        """Ask everything at once; if one is refused, nobody needs the others."""
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
        capability = _NEEDS.get(method)
        if method == "elicitation/create":
            capability = "elicitation.form" if url is None else "elicitation.url"
        if capability is None or not has_capability(exchange.caller.declared, capability):
            raise _cannot(exchange, method, capability or method)
        if url is not None and url in self._visited:
            return Raw(b'{"action":"accept"}')
        params = members.get("params", Raw(b"{}"))
        if url is not None:
            params, visit = _with_id(params)
            self._visits.append(visit)
        self._worded(method, params)
        request = Request(f"{self._call.sent_as}/{key}", method, params)
        try:
            given = await self._connection.asked_inside(self._call, request, self._bring)
        except RpcError:
            if method != "elicitation/create":
                raise  # there is no word for a refusal but not to come back
            return Raw(b'{"action":"cancel"}')
        except FairleadError as exc:
            why = f"{method} was not answered: the client {public_reason(exc)}"
            raise own_error(INTERNAL_ERROR, why) from exc
        answer = Raw(b"{}" if given is None else given)
        if url is not None and string_of((members_of(answer) or {}).get("action")) == "accept":
            self._visited.add(url)
        return answer

    async def _bring(self, asked: Exchange) -> Answer:
        """Ask the client, in the words of its revision."""
        exchange, params = self._call.exchange, asked.message.params
        if isinstance(params, UnsetType):
            params = Raw(b"{}")
        return await exchange.edge.request_caller(
            exchange, asked.method, self._worded(asked.method, params)
        )

    def _worded(self, method: str, params: Raw) -> Raw:
        """Raises: RpcError: there are no words for it."""
        try:
            return downgrade_params(method, params, self._call.exchange.caller.revision)
        except DowngradeError as exc:
            raise own_error(METHOD_NOT_FOUND, f"This client cannot be asked: {exc}") from exc


def _cannot(exchange: Exchange, method: str, capability: str) -> RpcError:
    return RpcError(
        MISSING_CAPABILITY,
        f"{exchange.method} needs an answer to {method}, and this client did not declare the "
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
    """The address that a question sends the user to, if it does."""
    params = members_of((members_of(question) or {}).get("params")) or {}
    return string_of(params.get("url")) if string_of(params.get("mode")) == "url" else None


def _with_id(params: Raw) -> tuple[Raw, str]:
    """2025-11-25 wants an id for each visit."""
    members = members_of(params) or {}
    visit = token_hex(16)
    members["elicitationId"] = encoded(visit)
    return encoded(members), visit
