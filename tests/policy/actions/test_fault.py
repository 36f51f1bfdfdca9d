"""Faults, one exchange at a time."""

from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.policy.actions import Fault
from tests.support.single_exchange import Behind, exchange


@pytest.mark.parametrize("settings", [{"chance": -0.1}, {"chance": 1.1}, {"seconds": -0.1}])
def test_faults_have_a_chance_and_a_time(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`chance`|`seconds`"):
        Fault("drop", **settings)


async def test_a_fault_without_a_chance_never_happens() -> None:
    assert await Fault("error", 0.0)(exchange(), Behind()) == b"{}"
    with pytest.raises(RpcError, match="A fault on purpose"):
        await Fault("error", 1.0)(exchange(), Behind())


async def test_faults_change_what_passes() -> None:
    behind = Behind()
    assert await Fault("duplicate")(exchange(), behind) == b"{}"
    assert len(behind.seen) == 2
    corrupt = await Fault("corrupt")(exchange(), Behind())
    assert bytes(corrupt or b"") == b'{"corrupt":true}'
    behind = Behind(None)
    await Fault("corrupt")(exchange("n", {"a": 1}, request=False), behind)
    assert bytes(behind.seen[0].message.params) == b'{"corrupt":true}'  # type: ignore[arg-type]
    assert await Fault("drop")(exchange(request=False), Behind()) is None
    assert await Fault("slow", seconds=0)(exchange(), Behind()) == b"{}"
