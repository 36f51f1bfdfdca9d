"""Hooks that an interceptor may define besides `__call__`, and their lookup."""

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Raw

from ..protocol.identity.token_principal import TokenPrincipal
from .chain import Interceptor, Proceed
from .exchange import Answer, Exchange
from .malformed_frame import MalformedFrame

__all__ = ["EditExtraMembers", "ExtraMembers", "InterceptorBase", "hooks_of", "overrides"]

# Response members other than result and error, which the protocol does not define.
ExtraMembers: TypeAlias = dict[str, Raw]
EditExtraMembers: TypeAlias = Callable[[Exchange, ExtraMembers], ExtraMembers]


class InterceptorBase:
    """Base class for interceptors. Every hook has a default that has no effect.

    An `async` function `(exchange, proceed) -> Answer` is an interceptor, and so is a callable
    object with the same signature. To define hooks, derive a class from this class. An object of
    another class may also define hooks, which are looked up once, when a chain is built. Hooks:

    * `__call__(exchange, proceed)` handles a request or a notification; by default it proceeds.
    * `passes(exchange)` returns True if the interceptor ignores both a message and its response, so
      that a relay can forward the message without a task.
    * `on_malformed(frame)` receives a frame that is not a valid message, or a message that is not
      allowed.
    * `extra_members(exchange, members)` returns the unknown members of a response that are
      forwarded.
    * `shown(exchange, tool)` returns the definition of a tool for display in a gateway's search, or
      None to hide it.
    * `views_changed()` drops decisions that depend on a gateway's views, because the views have
      changed.
    * `access_refused(principal)` receives the principal of a valid access token that a gateway
      refuses.
    * `close()` releases resources when the interceptor's rule is removed.
    * `waits` is False if the interceptor awaits only `proceed`. It then has no time limit, and the
      rules after it need not be looked up again.
    * `also` names methods that the interceptor receives regardless of its rule's conditions.
    * `pure` is True if the interceptor only reads and changes messages, so that it can be tested on
      a recording.

    A `SyncInterceptor` has one more hook, `before(exchange)`, which replaces `__call__`.

    `waits` and `passes` describe the `__call__` (or `before`) that they were written for. A derived
    class that overrides only the method gets the default `waits` and `passes`, not the inherited
    ones.
    """

    waits: ClassVar[bool] = True
    also: ClassVar[frozenset[str]] = frozenset()
    pure: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not _describes(cls, "waits"):
            cls.waits = InterceptorBase.waits
        if not _describes(cls, "passes", "before"):
            cls.passes = InterceptorBase.passes  # type: ignore[method-assign]

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        """Return the result of a request, or None for a notification.

        Raises:
            RpcError: The interceptor refuses the request.
        """
        return await proceed(exchange)

    def passes(self, exchange: Exchange) -> bool:
        """Return True if the interceptor ignores both a message and its response."""
        return False

    def on_malformed(self, frame: MalformedFrame, /) -> None:
        """Receive a frame that is not a valid message, or a message that is not allowed."""

    def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        """Return the unknown members of a response that should be forwarded."""
        return members

    def shown(self, exchange: Exchange, tool: Raw, /) -> Raw | None:
        """Return the definition of a tool that this client may see; None hides the tool."""
        return tool

    def views_changed(self) -> None:
        """Drop every decision that depends on the previous views."""

    def access_refused(self, principal: TokenPrincipal, /) -> None:
        """Receive the principal of a valid access token that a gateway refuses."""

    def close(self) -> None:
        """Release resources."""


_FLAGS: Final = ("also", "pure")
_HOOKS: Final = (
    "on_malformed",
    "extra_members",
    "shown",
    "views_changed",
    "access_refused",
    "close",
)


def hooks_of(interceptor: Interceptor) -> InterceptorBase:
    """Return the object with an interceptor's hooks: itself,
    or a wrapper for another class's hooks.
    """
    if isinstance(interceptor, InterceptorBase):
        return interceptor
    return _FoundHooks(interceptor)


def overrides(hooks: InterceptorBase, hook: Callable[..., Any]) -> bool:
    """Return True if a method of `InterceptorBase` is overridden, so that calling it has an effect.

    If no interceptor overrides it, its arguments need not be prepared.
    """
    name = hook.__name__
    return name in vars(hooks) or getattr(type(hooks), name) is not hook


def _describes(kind: type, name: str, *acts: str) -> bool:
    """Return True if an attribute of a class describes how its objects handle messages.

    An attribute of a base class does not if a derived class overrides `__call__` or one of the
    `acts`.
    """
    for base in kind.__mro__:
        members = vars(base)
        if name in members:
            return True
        if "__call__" in members or any(act in members for act in acts):
            return False
    return False


class _FoundHooks(InterceptorBase):
    """Hooks defined by an interceptor of another class; that interceptor handles the messages."""

    def __init__(self, interceptor: Interceptor) -> None:
        for name in _FLAGS:
            if hasattr(interceptor, name):
                setattr(self, name, getattr(interceptor, name))
        for name in _HOOKS:
            if callable(hook := getattr(interceptor, name, None)):
                setattr(self, name, hook)
        for name, acts in (("waits", ()), ("passes", ("before",))):
            # Objects of classes with `__slots__` have no `__dict__`.
            own = vars(interceptor) if hasattr(interceptor, "__dict__") else ()
            if name in own or _describes(type(interceptor), name, *acts):
                setattr(self, name, getattr(interceptor, name))
