"""Scopes that client messages require, depending on the named tool, resource or prompt."""

from collections.abc import Callable, Sequence
from itertools import chain

from msgspec import UnsetType

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.caller import ParamsHead, Principal, read_params_head
from ...protocol.identity.principal_scopes import missing_scopes
from ...protocol.types.completion import CompleteParams
from ...wire import Notification, Request
from ...wire.error_codes import INVALID_REQUEST
from ..decode_params import decode_params
from .change_broadcaster import subscribed_uris
from .completion_registry import referred_entry
from .paged_list import PagedList
from .prompt_entry import PromptEntry
from .resource_registry import Resources
from .tool_entry import ToolEntry

__all__ = ["EntryScopes", "InsufficientScope"]


class InsufficientScope(RpcError):
    """The token of a request lacks scopes; over HTTP, the response is a 403 with a challenge."""

    def __init__(self, scopes: Sequence[str]) -> None:
        needed = " ".join(scopes)
        super().__init__(
            INVALID_REQUEST,
            f"This operation needs the scopes: {needed}",
            {"error": "insufficient_scope", "scope": needed},
        )
        self.scopes = tuple(scopes)


class EntryScopes:
    """The scopes of all entries of a server."""

    def __init__(
        self,
        tools: Callable[[], PagedList[ToolEntry]],
        resources: Resources,
        prompts: PagedList[PromptEntry],
    ) -> None:
        self._tools = tools
        self._resources = resources
        self._prompts = prompts
        self._all: tuple[str, ...] | None = None

    def entries_changed(self) -> None:
        """Discard the cached scopes, because entries were added, changed or removed."""
        self._all = None

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of all entries, without repetitions."""
        if self._all is None:
            resources = (*self._resources.fixed.entries(), *self._resources.templates.entries())
            scopes = [entry.scopes for entry in resources]
            scopes += [entry.scopes for entry in self._prompts.entries()]
            scopes += [entry.scopes for entry in self._tools().entries()]
            self._all = tuple(dict.fromkeys(chain.from_iterable(scopes)))
        return self._all

    def required(self, message: Request | Notification) -> Sequence[str]:
        """Return the scopes that a message requires; none for an entry that does not exist."""
        return self._of(message, None) if self.scopes else ()

    def check(self, exchange: Exchange) -> None:
        """Check that the principal of a request has the scopes that the request requires.

        Raises:
            InsufficientScope: The principal lacks one of these scopes.
        """
        if self.scopes:
            self.check_message(exchange.message, exchange.caller.principal, exchange.head)

    def check_message(
        self, message: Request | Notification, principal: Principal, head: ParamsHead | None = None
    ) -> None:
        """Check that a principal has the scopes that a message requires.

        Raises:
            InsufficientScope: The principal lacks one of these scopes.
        """
        needed = self._of(message, head) if self.scopes else ()
        if needed and missing_scopes(principal, needed):
            raise InsufficientScope(needed)

    def _of(self, message: Request | Notification, head: ParamsHead | None) -> Sequence[str]:
        # The params are read by the functions that the handlers use: otherwise, a request could
        # name one entry for this check and another one for the handler.
        method = message.method
        if method not in _METHODS:
            return ()
        head = read_params_head(message.params) if head is None else head
        name = "" if isinstance(head.name, UnsetType) else head.name
        uri = "" if isinstance(head.uri, UnsetType) else head.uri
        match method:
            case "tools/call":
                tool = self._tools().get(name)
                return () if tool is None else tool.scopes
            case "prompts/get":
                prompt = self._prompts.get(name)
                return () if prompt is None else prompt.scopes
            case "subscriptions/listen":
                return self._of_listened(message)
            case "completion/complete":
                return self._of_reference(message)
            case _:
                return self._of_uri(uri)

    def _of_uri(self, uri: str) -> Sequence[str]:
        found = self._resources.find(uri)
        return () if found is None else found[0].scopes

    def _of_listened(self, message: Request | Notification) -> Sequence[str]:
        # Loaded on first use: few servers have subscribers.
        from ...protocol.types.subscriptions import ListenParams

        try:
            wanted = decode_params(message.params, ListenParams).notifications
        except RpcError:
            return ()  # the handler refuses the request
        found = (self._of_uri(uri) for uri in subscribed_uris(wanted))
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    def _of_reference(self, message: Request | Notification) -> Sequence[str]:
        try:
            reference = decode_params(message.params, CompleteParams).ref
        except RpcError:
            return ()  # the handler refuses the request
        entry = referred_entry(reference, self._prompts, self._resources)
        return () if entry is None else entry.scopes


_METHODS = frozenset(
    (
        "tools/call",
        "prompts/get",
        "resources/read",
        "resources/subscribe",
        "subscriptions/listen",
        "completion/complete",
    )
)
