"""Creation of event loops for programs that Fairlead runs."""

import asyncio

__all__ = ["new_loop"]


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop if it is installed (1.5 times as fast), else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
