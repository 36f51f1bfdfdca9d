"""Requests for input that tools, resources and prompts send before their result."""

import asyncio
from typing import Any

from ...errors import CannotAsk, RpcError
from ...protocol.caller import nested_capability
from ...wire.error_codes import MISSING_CAPABILITY
from ..context.context import Context

__all__ = ["ends_round", "missing_capability", "questions_of"]


def missing_capability(exc: CannotAsk) -> RpcError:
    """Return the error for a stateless client that did not declare a required capability."""
    required = nested_capability(exc.capability)
    return RpcError(MISSING_CAPABILITY, str(exc), {"requiredCapabilities": required})


def questions_of(context: Context, meta: dict[str, Any]) -> bytes:
    """Return the result that sends the pending requests for input to a stateless client."""
    assert context.rounds is not None
    return context.rounds.result({"_meta": meta})


def ends_round(context: Context) -> bool:
    """Return True if the end of a round is the only reason why this task was cancelled."""
    task = asyncio.current_task()
    # A count above 0 after `uncancel` means that the peer has cancelled the call as well.
    return context.round_ended and task is not None and task.uncancel() == 0
