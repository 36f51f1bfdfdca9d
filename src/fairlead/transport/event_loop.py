"""The event loop of programs that Fairlead runs itself; a running loop is never replaced."""

import asyncio

__all__ = ["new_loop"]


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop if it is installed (1.5 times as fast), else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
