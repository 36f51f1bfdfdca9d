"""Which trace a request belongs to (W3C Trace Context and Baggage), in the words of `_meta`.

What comes with a request goes with those that its handler makes. Whoever uses OpenTelemetry in
this process has its current span passed on; it is not loaded for that.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from ..wire import to_json
from .caller import Meta

__all__ = [
    "Trace",
    "current_trace",
    "outgoing_trace",
    "request_trace",
    "tracing",
]

KEYS: Final = ("traceparent", "tracestate", "baggage")


class Trace(Struct, frozen=True):
    """Where a request belongs."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None
    given: bool = False  # by a program; else it came with a request

    @property
    def members(self) -> bytes:
        """As members of `_meta`, without the braces."""
        said = {name: held for name in KEYS if (held := getattr(self, name)) is not None}
        return to_json(said)[1:-1]


# The trace of what is done now, if it belongs to one.
current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)


@contextmanager
def tracing(
    traceparent: str | None, tracestate: str | None = None, baggage: str | None = None
) -> Iterator[Trace]:
    """Requests that are made inside of it belong to this trace. Nothing is checked here.

    with tracing("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        await client.call("forecast", {"city": "Bonn"})
    """
    trace = Trace(traceparent, tracestate, baggage, given=True)
    token = current_trace.set(trace)
    try:
        yield trace
    finally:
        current_trace.reset(token)


@contextmanager
def request_trace(meta: Meta | UnsetType) -> Iterator[None]:
    """While a request is handled: what is asked meanwhile belongs where it does."""
    trace = None
    if not isinstance(meta, UnsetType):
        held = {name: getattr(meta, name) for name in KEYS}
        told: dict[str, Any] = {name: one for name, one in held.items() if one is not UNSET}
        trace = Trace(**told) if told else None
    token = current_trace.set(trace)
    try:
        yield None
    finally:
        current_trace.reset(token)


def outgoing_trace() -> bytes:
    """What a request that leaves now says of its trace: members of `_meta`, without the braces."""
    trace = current_trace.get()
    if trace is not None and trace.given:
        return trace.members
    if "opentelemetry.trace" in sys.modules and (found := _of_opentelemetry()):
        return found
    return b"" if trace is None else trace.members


def _of_opentelemetry() -> bytes:
    """The current span, as the propagators of the program put it."""
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    said = {name: carrier[name] for name in KEYS if name in carrier}
    return to_json(said)[1:-1] if said else b""
