"""One server behind a gateway and the connection that the manager keeps to it."""

import asyncio

from fairlead.errors import ChannelClosed
from fairlead.gateway.backends.replica import Replica
from fairlead.interceptor import CircuitBreaker
from fairlead.manager import MCPManager
from fairlead.manager.supervisor import Rules
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.relay_settings import RelaySettings
from fairlead.relay.upstream_connection import Link
from fairlead.server.features.subscription_quota import SubscriptionQuota
from tests.support.gateway_servers import LIMIT, program, until


async def test_a_new_connection_reports_the_loss_of_the_previous_one() -> None:
    rules = Rules(idle_stop=0.05, health_interval=0)
    async with asyncio.timeout(LIMIT), MCPManager(rules=rules, lazy=True) as manager:
        await manager.connect_servers({"red": program("red")})
        configured = manager.get_configured("red")
        assert configured is not None
        settings = RelaySettings()
        replica = Replica(
            "red",
            manager,
            configured,
            settings,
            ParkedCalls(settings),
            SubscriptionQuota(),
            CircuitBreaker(name="red"),
        )
        lost: list[Link] = []

        def on_lost(link: Link, end: ChannelClosed) -> None:
            lost.append(link)

        replica.relay.upstream.on_lost = on_lost
        first = await replica.base()
        assert await replica.base() is first
        await until(lambda: manager.describe()["red"].state == "idle")
        second = await replica.base()
        assert second is not first
        assert lost == [first]
        await replica.close()
