"""The hooks that an interceptor may define besides `__call__`, and how they are found."""

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import Raw

from .chain import Interceptor, Proceed
from .exchange import Answer, Exchange
from .malformed_frame import MalformedFrame

__all__ = ["EditExtraMembers", "ExtraMembers", "InterceptorBase", "hooks_of", "overrides"]

# Members beside the result or the error of a response: the protocol knows none, but what peers
# send is passed on.
ExtraMembers: TypeAlias = dict[str, Raw]
EditExtraMembers: TypeAlias = Callable[[Exchange, ExtraMembers], ExtraMembers]


class InterceptorBase:
    """Base class of interceptors; every hook has a default that does nothing.

    An `async` function `(exchange, proceed) -> Answer` is an interceptor, and so is an object
    that is called like one. To define hooks, derive a class from this one. An object of another
    class may define them as well: they are looked up once, when a chain is built. Hooks:

    * `__call__(exchange, proceed)` handles a request or a notification; by default it proceeds.
    * `passes(exchange)` returns True if neither a message nor its response concerns the
      interceptor, so that a relay can forward it without a task.
    * `on_malformed(frame)` receives a frame that is not a message, or not one that is allowed.
    * `extra_members(exchange, members)` returns the members beside a result or an error that are
      passed on with it.
    * `shown(exchange, tool)` returns the definition of a tool as the search of a gateway shows it,
      or None to hide it.
    * `views_changed()` drops what was decided under the views of a gateway's clients, which have
      changed.
    * `close()` releases what the interceptor holds, when its rule is removed.
    * `waits` is False if the interceptor awaits nothing but `proceed`: it gets no time limit of its
      own, and the rules behind it need not be looked up again.
    * `also` names methods that the interceptor sees whatever the conditions of its rule say.
    * `pure` is True if the interceptor only reads and changes messages, so that it can be tried out
      on a recording.

    A `SyncInterceptor` has one more, `before(exchange)`, in the place of `__call__`.

    `waits` and `passes` describe the `__call__` (or `before`) that they were written for. A derived
    class that overrides it and not them gets the defaults, not what it would inherit.
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
            RpcError: to refuse.
        """
        return await proceed(exchange)

    def passes(self, exchange: Exchange) -> bool:
        """Return True if neither a message nor its response concerns the interceptor."""
        return False

    def on_malformed(self, frame: MalformedFrame, /) -> None:
        """Receive a frame that is not a message, or not one that is allowed."""

    def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        """Return the members that are passed on beside the result or the error of a request."""
        return members

    def shown(self, exchange: Exchange, tool: Raw, /) -> Raw | None:
        """Return the definition of a tool as this client may see it; None hides the tool."""
        return tool

    def views_changed(self) -> None:
        """Drop everything that was decided under the views of before."""

    def close(self) -> None:
        """Release what is held open."""


_FLAGS: Final = ("also", "pure")
_HOOKS: Final = ("on_malformed", "extra_members", "shown", "views_changed", "close")


def hooks_of(interceptor: Interceptor) -> InterceptorBase:
    """Return the hooks of an interceptor: itself, or for another class those that it defines."""
    if isinstance(interceptor, InterceptorBase):
        return interceptor
    return _FoundHooks(interceptor)


def overrides(hooks: InterceptorBase, hook: Callable[..., Any]) -> bool:
    """Return True if a method of `InterceptorBase` is overridden, so that calling it has an effect.

    Where no interceptor does, the work of preparing its arguments can be saved.
    """
    name = hook.__name__
    return name in vars(hooks) or getattr(type(hooks), name) is not hook


def _describes(kind: type, name: str, *acts: str) -> bool:
    """Return True if an attribute of a class describes how its objects handle messages.

    It does unless `__call__`, or one of the `acts`, is overridden further down than the attribute.
    """
    for base in kind.__mro__:
        members = vars(base)
        if name in members:
            return True
        if "__call__" in members or any(act in members for act in acts):
            return False
    return False


class _FoundHooks(InterceptorBase):
    """The hooks of an interceptor of another class; only it is called with messages."""

    def __init__(self, interceptor: Interceptor) -> None:
        for name in _FLAGS:
            if hasattr(interceptor, name):
                setattr(self, name, getattr(interceptor, name))
        for name in _HOOKS:
            if callable(hook := getattr(interceptor, name, None)):
                setattr(self, name, hook)
        for name, acts in (("waits", ()), ("passes", ("before",))):
            own = vars(interceptor) if hasattr(interceptor, "__dict__") else ()
            if name in own or _describes(type(interceptor), name, *acts):
                setattr(self, name, getattr(interceptor, name))
