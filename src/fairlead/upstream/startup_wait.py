"""How long a call waits for a server that is still starting.

A list shows what is there after a moment, because the rest can be announced as a change. A call
cannot be completed later, so it waits as long as a start may take.
"""

from math import inf

from ..errors import ConnectFailed, RpcError
from ..protocol.own_errors import own_error
from ..wire.error_codes import INTERNAL_ERROR

__all__ = ["StartupWait", "StillStarting", "still_starting_error"]


class StartupWait:
    """How long a call waits for a server to start, and the setting that says so."""

    def __init__(self, connect_timeout: float, call_timeout: float) -> None:
        """As long as a start may take, but no longer than the call itself; 0: no limit."""
        self.limit = connect_timeout or inf
        self.setting = "`timeout` (milliseconds) in its entry"
        if 0 < call_timeout < self.limit:
            self.limit, self.setting = call_timeout, "`call_timeout` (seconds)"

    @property
    def seconds(self) -> float | None:
        return None if self.limit == inf else self.limit


class StillStarting(ConnectFailed):
    """A server could not be asked yet, which is not a failure of it."""

    def __init__(self, wait: StartupWait) -> None:
        why = (
            f"is still starting, after {wait.limit:g} s. Try again in a moment; if it always "
            f"takes so long, raise {wait.setting}"
        )
        super().__init__(f"it {why}", public=why)


def still_starting_error(server: str, error: StillStarting) -> RpcError:
    """Return the error for a client whose call has waited too long for a start."""
    return own_error(INTERNAL_ERROR, f"{server} {error.public}", server=server, starting=True)
