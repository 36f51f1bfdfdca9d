"""Counts of lost processes, by the key of the clients that used them."""

import asyncio
import math
from collections import deque
from typing import Any

from ...errors import ConnectFailed
from .connection_key import ConnectionKey, describe_key

__all__ = ["LOSS_WINDOW", "MAX_LOSSES", "LossCounter"]

# more than MAX_LOSSES losses within LOSS_WINDOW seconds suspend a key, or the default connection
MAX_LOSSES, LOSS_WINDOW = 5, 30.0
MOST_KEYS = 1024  # maximum number of keys whose losses are remembered


class LossCounter:
    """The recent losses of one server.

    A key with too many of them is suspended; other keys are not affected.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._losses: dict[ConnectionKey, deque[float]] = {}

    def count(self, key: ConnectionKey) -> None:
        """Count a loss."""
        losses = self._losses.pop(key, None)
        # Clients influence the keys, so their number is limited.
        if losses is None and len(self._losses) >= MOST_KEYS:
            del self._losses[next(iter(self._losses))]
        # The key is added at the end, so that the first key is the one without a recent loss.
        self._losses[key] = losses = losses or deque(maxlen=MAX_LOSSES + 1)
        losses.append(asyncio.get_running_loop().time())

    def check(self, key: ConnectionKey, unreported: int) -> None:
        """Check that processes of this key were not lost too often recently.

        `unreported` losses have not been counted yet.

        Raises:
            ConnectFailed: The key is suspended.
        """
        losses = self._losses.get(key)
        if losses is None or len(losses) + unreported <= MAX_LOSSES:
            return
        left = _suspension(losses)
        if left < 0:
            del self._losses[key]
            return
        why = f"failed more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        why += f"; try again in {max(math.ceil(left), 1)} s"
        raise ConnectFailed(f"{self.name} {why}", public=why, retry_after=round(left, 1))

    def describe_suspended(self) -> list[dict[str, Any]]:
        """Return the suspended keys as plain data."""
        return [
            {**describe_key(key), "losses": len(losses), "seconds": round(left, 1)}
            for key, losses in self._losses.items()
            if len(losses) > MAX_LOSSES and (left := _suspension(losses)) >= 0
        ]

    def clear(self) -> None:
        """Forget all losses."""
        self._losses.clear()


def _suspension(losses: deque[float]) -> float:
    """Return the seconds until the first of these losses no longer counts."""
    return losses[0] + LOSS_WINDOW - asyncio.get_running_loop().time()
