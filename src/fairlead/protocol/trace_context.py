"""Trace of a request (W3C Trace Context and Baggage), as members of `_meta`.

Requests that a handler sends belong to the trace of the request it handles. If the program uses
OpenTelemetry, its current span is sent instead; this module does not import OpenTelemetry itself.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from ..wire import to_json
from .caller import Meta

__all__ = ["current_trace", "outgoing_trace", "request_trace", "tracing"]

KEYS: Final = ("traceparent", "tracestate", "baggage")


class Trace(Struct, frozen=True):
    """Trace that a request belongs to."""

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None
    given: bool = False  # set by the program, not by a request

    @property
    def members(self) -> bytes:
        """Return the trace as members of `_meta`, without the braces."""
        said = {name: held for name in KEYS if (held := getattr(self, name)) is not None}
        return to_json(said)[1:-1]


# Trace of the current task, if any.
current_trace: ContextVar[Trace | None] = ContextVar("current_trace", default=None)


@contextmanager
def tracing(
    traceparent: str | None, tracestate: str | None = None, baggage: str | None = None
) -> Iterator[Trace]:
    """Assign the requests sent inside the `with` block to this trace. The values are not checked.

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
    """Assign the requests sent by a request's handler to the trace of that request."""
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
    """Return the trace for a request that is sent now, as members of `_meta` without the braces."""
    trace = current_trace.get()
    # A trace that the program has set explicitly takes precedence over its current span.
    if trace is not None and trace.given:
        return trace.members
    if "opentelemetry.trace" in sys.modules and (found := _of_opentelemetry()):
        return found
    return b"" if trace is None else trace.members


def _of_opentelemetry() -> bytes:
    """Return the current span, encoded by the program's propagators."""
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    said = {name: carrier[name] for name in KEYS if name in carrier}
    return to_json(said)[1:-1] if said else b""
