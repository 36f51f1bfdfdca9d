"""The time that a call waits for a server that is still starting.

A list request waits only briefly, because later items can be announced as a change. A call cannot
be completed later, so it waits as long as a start may take.
"""

from math import inf

from ..errors import ConnectFailed, RpcError
from ..protocol.own_errors import own_error
from ..wire.error_codes import INTERNAL_ERROR

__all__ = ["StartupWait", "StillStarting", "still_starting_error"]


class StartupWait:
    """The time that a call waits for the start of a server, and the setting that limits it."""

    def __init__(self, connect_timeout: float, call_timeout: float) -> None:
        """The lower of the two timeouts applies; 0 means no limit."""
        self.limit = connect_timeout or inf
        self.setting = "`timeout` (milliseconds) in its entry"
        if 0 < call_timeout < self.limit:
            self.limit, self.setting = call_timeout, "`call_timeout` (seconds)"

    @property
    def seconds(self) -> float | None:
        return None if self.limit == inf else self.limit


class StillStarting(ConnectFailed):
    """Error for a request to a server that is still starting. The server has not failed."""

    def __init__(self, wait: StartupWait) -> None:
        why = (
            f"is still starting, after {wait.limit:g} s. Try again in a moment; if it always "
            f"takes so long, raise {wait.setting}"
        )
        super().__init__(f"the server {why}", public=why)


def still_starting_error(server: str, error: StillStarting) -> RpcError:
    """Return the error for a client whose call waited too long for a start."""
    return own_error(INTERNAL_ERROR, f"{server} {error.public}", server=server, starting=True)
