"""How long a call waits for a server that is still starting."""

from math import inf

import pytest

from fairlead.upstream.startup_wait import StartupWait, StillStarting

ENTRY, CALL = "`timeout` (milliseconds) in its entry", "`call_timeout` (seconds)"


@pytest.mark.parametrize(
    ("connect", "call", "limit", "setting"),
    [
        (30.0, 0.0, 30.0, ENTRY),
        (30.0, 10.0, 10.0, CALL),
        (30.0, 30.0, 30.0, ENTRY),
        (30.0, 60.0, 30.0, ENTRY),
        (0.0, 10.0, 10.0, CALL),
        (0.0, 0.0, inf, ENTRY),
    ],
)
def test_a_call_waits_for_a_start_until_the_lower_of_both_limits(
    connect: float, call: float, limit: float, setting: str
) -> None:
    wait = StartupWait(connect, call)
    assert (wait.limit, wait.setting) == (limit, setting)
    assert wait.seconds == (None if limit == inf else limit)


@pytest.mark.parametrize(("wait", "setting"), [((2.5, 0.0), ENTRY), ((30.0, 2.5), CALL)])
def test_the_timeout_error_names_the_setting_to_raise(
    wait: tuple[float, float], setting: str
) -> None:
    error = StillStarting(StartupWait(*wait))
    assert error.public == (
        "is still starting, after 2.5 s. Try again in a moment; if it always takes so long, "
        f"raise {setting}"
    )
    assert str(error) == f"the server {error.public}"
    assert not error.delivered
