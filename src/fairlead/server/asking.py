"""Resources and prompts may ask the caller's side something, as tools do."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ..errors import CannotAsk, RpcError
from ..wire.codes import INVALID_REQUEST, MISSING_CAPABILITY
from .context import Context

__all__ = ["answered_or_asked", "missing_capability"]


def missing_capability(exc: CannotAsk) -> RpcError:
    """How a stateless caller is told what it would have to declare."""
    required: dict[str, Any] = {}
    for part in reversed(exc.capability.split(".")):
        required = {part: required}
    return RpcError(MISSING_CAPABILITY, str(exc), {"requiredCapabilities": required})


async def answered_or_asked(
    context: Context, work: Coroutine[Any, Any, bytes], meta: dict[str, Any]
) -> bytes:
    """The answer that `work` makes; or, to a stateless caller, the questions that come before it.

    Raises:
        RpcError: if the caller cannot be asked.
    """
    try:
        answer = await work
    except asyncio.CancelledError:
        # The one that ended the round and nobody else's: any other goes on.
        task = asyncio.current_task()
        if not context.round_ended or task is None or task.uncancel() > 0:
            raise
    except CannotAsk as exc:
        if not context.exchange.caller.stateless:
            raise RpcError(INVALID_REQUEST, str(exc)) from exc
        raise missing_capability(exc) from exc
    else:
        if not context.round_ended:
            return answer
    finally:
        context.release()
    assert context.rounds is not None
    return context.rounds.result({"_meta": meta})
