"""Tools, resources and prompts may ask the caller's side something before they answer."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ...errors import CannotAsk, RpcError
from ...wire.error_codes import INVALID_REQUEST, MISSING_CAPABILITY
from ..context.context import Context

__all__ = ["ends_round", "missing_capability", "questions_of", "run_or_request_input"]


def missing_capability(exc: CannotAsk) -> RpcError:
    """How a stateless caller is told what it would have to declare."""
    required: dict[str, Any] = {}
    for part in reversed(exc.capability.split(".")):
        required = {part: required}
    return RpcError(MISSING_CAPABILITY, str(exc), {"requiredCapabilities": required})


def questions_of(context: Context, meta: dict[str, Any]) -> bytes:
    """Return the result that asks a stateless caller what a round wants to know."""
    assert context.rounds is not None
    return context.rounds.result({"_meta": meta})


def ends_round(context: Context) -> bool:
    """Return True if the cancellation of this task is the one that ended a round, and no other."""
    task = asyncio.current_task()
    return context.round_ended and task is not None and task.uncancel() == 0


async def run_or_request_input(
    context: Context, work: Coroutine[Any, Any, bytes], meta: dict[str, Any]
) -> bytes:
    """Return the answer that `work` makes, or the questions that come before it.

    Raises:
        RpcError: if the caller cannot be asked.
    """
    try:
        answer = await work
        return questions_of(context, meta) if context.round_ended else answer
    except asyncio.CancelledError:
        if ends_round(context):
            return questions_of(context, meta)
        raise
    except CannotAsk as exc:
        if not context.exchange.caller.stateless:
            raise RpcError(INVALID_REQUEST, str(exc)) from exc
        raise missing_capability(exc) from exc
    finally:
        context.release()
