"""Our client with a server of the official Python SDK, over HTTP, in every revision.

The tests of `test_official_server.py` are repeated over HTTP.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead import MCPClient
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from tests.interop.test_official_server import (
    test_a_cancellation_stops_the_handler_of_the_official_server,
    test_a_rejected_elicitation_fails_the_call,
    test_all_requests_from_the_official_server_during_one_call_are_answered,
    test_calls_to_the_official_server_end_in_results_or_errors,
    test_cancelling_a_call_cancels_its_pending_elicitation,
    test_fairlead_client_answers_form_elicitations_from_the_official_server,
    test_fairlead_client_answers_sampling_and_roots_requests_from_the_official_server,
    test_fairlead_client_answers_url_elicitations_from_the_official_server,
    test_fairlead_client_receives_completions_from_the_official_server,
    test_fairlead_client_receives_list_changes_from_the_official_server,
    test_fairlead_client_receives_updates_of_subscribed_resources,
    test_many_concurrent_calls_of_the_official_server_may_elicit,
    test_progress_and_log_messages_from_the_official_server_arrive_in_order,
    test_resource_templates_of_the_official_server_are_listed_and_read,
    test_resources_and_prompts_of_the_official_server_may_elicit,
    test_sampling_requests_from_the_official_server_may_contain_tools,
    test_structured_content_of_the_official_server_matches_its_schema,
    test_the_official_server_can_ping_fairlead_client,
    test_the_official_server_receives_changed_roots,
)
from tests.support.interop import client_features as visits
from tests.support.interop.http_servers import (
    TALKATIVE,
    TERSE,
    our_network_client,
    our_network_visit,
    port_of,
    served,
)
from tests.support.interop.server_processes import Host, Stage, answering

__all__ = [
    "test_a_cancellation_stops_the_handler_of_the_official_server",
    "test_a_rejected_elicitation_fails_the_call",
    "test_all_requests_from_the_official_server_during_one_call_are_answered",
    "test_calls_to_the_official_server_end_in_results_or_errors",
    "test_cancelling_a_call_cancels_its_pending_elicitation",
    "test_fairlead_client_answers_form_elicitations_from_the_official_server",
    "test_fairlead_client_answers_sampling_and_roots_requests_from_the_official_server",
    "test_fairlead_client_answers_url_elicitations_from_the_official_server",
    "test_fairlead_client_receives_completions_from_the_official_server",
    "test_fairlead_client_receives_list_changes_from_the_official_server",
    "test_fairlead_client_receives_updates_of_subscribed_resources",
    "test_many_concurrent_calls_of_the_official_server_may_elicit",
    "test_progress_and_log_messages_from_the_official_server_arrive_in_order",
    "test_resource_templates_of_the_official_server_are_listed_and_read",
    "test_resources_and_prompts_of_the_official_server_may_elicit",
    "test_sampling_requests_from_the_official_server_may_contain_tools",
    "test_structured_content_of_the_official_server_matches_its_schema",
    "test_the_official_server_can_ping_fairlead_client",
    "test_the_official_server_receives_changed_roots",
]

# These cover every revision. The "resumable" server adds ids to events.
STAGES = TALKATIVE + [("events", revision) for revision in HANDSHAKE[:-1]]
STAGES += [("sse", HANDSHAKE[0]), ("resumable", NEWEST_HANDSHAKE)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run the official server with all features over every transport."""
    with served("official_http") as url:
        yield url


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def visit(request: pytest.FixtureRequest, url: str) -> Iterator[Stage[MCPClient]]:
    """Connect our client on a transport that allows messages during a call."""
    way, revision = request.param
    with our_network_visit(f"{url}/{way}", revision) as stage:
        yield stage


@pytest.fixture(scope="module", params=TERSE, ids="-".join)
def terse(request: pytest.FixtureRequest, url: str) -> Iterator[Stage[MCPClient]]:
    """Connect our client to a server with JSON responses or without sessions."""
    way, revision = request.param
    with our_network_visit(f"{url}/{way}", revision) as stage:
        yield stage


@pytest.mark.covers("HTT-03")
async def test_an_official_server_without_streams_or_sessions_has_the_same_features(
    terse: Stage[MCPClient],
) -> None:
    await test_calls_to_the_official_server_end_in_results_or_errors(terse)
    await visits.read_templates(terse)
    await visits.complete_arguments(terse)
    await visits.get_structured_content(terse)
    assert terse.client.skipped == []


async def test_an_official_server_without_streams_or_sessions_may_elicit_in_the_stateless_era(
    terse: Stage[MCPClient],
) -> None:
    if terse.revision.stateless:
        await visits.fill_in_forms(terse)
        terse.host.reset()
        await visits.open_pages(terse)
        terse.host.reset()
        await visits.lend_model_and_folders(terse)
        terse.host.reset()
        await visits.answer_while_reading(terse)
    else:
        refused = await visits.refusal(terse.client.call("ask"))
        assert "no back-channel" in refused.message


async def test_an_official_server_sends_progress_unless_its_responses_are_json(
    terse: Stage[MCPClient],
) -> None:
    steps: list[object] = []
    counted = await terse.client.call(
        "count", {"to": 2}, on_progress=lambda *step: steps.append(step)
    )
    assert counted.text == "counted to 2"
    told = [(1, 2, "step 1"), (2, 2, "step 2")] if terse.way == "stateless" else []
    assert steps == told


@pytest.mark.covers("PRO-31")
async def test_a_timeout_stops_the_handler_of_a_server_without_streams_or_sessions(
    terse: Stage[MCPClient],
) -> None:
    if terse.way == "json" and terse.revision.stateless:
        return  # with JSON responses, the stateless server does not detect the timeout
    with pytest.raises(RequestTimeout):
        await terse.client.call("wait", timeout=0.1)
    assert await visits.text_of(terse.client, "was_stopped") == "stopped"


@pytest.mark.covers("PRO-16", "PRO-23")
async def test_an_official_server_without_streams_or_sessions_sends_changes_on_a_listen_stream(
    terse: Stage[MCPClient],
) -> None:
    if terse.way == "stateless" and not terse.revision.stateless:
        return  # without a session, a handshake server cannot send changes
    await visits.hear_of_updates(terse)
    await visits.hear_of_lists(terse)


@pytest.mark.covers("HTT-21", "SSE-03")
@pytest.mark.parametrize("mode", ["http", "sse"])
async def test_the_http_sse_transport_is_detected_or_selected(mode: str, url: str) -> None:
    async with our_network_client(f"{url}/sse", "latest", mode=mode) as client:
        assert await visits.text_of(client, "add", a=2, b=40) == "42"


@pytest.mark.parametrize("way", ["events", "json", "stateless"])
async def test_fairlead_client_detects_the_era_of_the_official_server(way: str, url: str) -> None:
    async with our_network_client(f"{url}/{way}", "auto") as client:
        assert client.protocol_version == NEWEST
    async with our_network_client(f"{url}/{way}", "latest") as client:
        assert client.protocol_version == NEWEST_HANDSHAKE


@pytest.mark.covers("HTT-05")
async def test_a_call_to_the_official_server_is_resumed_after_its_connection_was_closed(
    url: str,
) -> None:
    steps: list[object] = []
    async with our_network_client(f"{url}/resumable", NEWEST_HANDSHAKE.value) as client:
        before = int(await visits.text_of(client, "replays"))
        result = await client.call("hang_up", on_progress=lambda *step: steps.append(step))
        assert int(await visits.text_of(client, "replays")) == before + 1

    assert result.text == "still here"
    assert steps == [(1, 3, "before"), (2, 3, "meanwhile"), (3, 3, "after")]


@pytest.mark.covers("HTT-08")
async def test_a_session_is_renewed_after_a_restart_of_the_official_server() -> None:
    async with started_again(NEWEST_HANDSHAKE) as (client, host):
        assert await visits.text_of(client, "add", a=2, b=40) == "42"
        await hear_of_greeting(client, host)  # succeeds only if the subscription was restored
        await visits.text_of(client, "count", to=1)
        await host.hears(("debug", "count", "step 1"))


async def test_stateless_calls_work_after_a_restart_of_the_official_server() -> None:
    async with started_again(NEWEST) as (client, host):
        assert await visits.text_of(client, "add", a=2, b=40) == "42"
        await visits.text_of(client, "count", to=1)
        await host.hears(("debug", "count", "step 1"))


async def test_the_listen_stream_is_reopened_after_a_restart_of_the_official_server() -> None:
    async with started_again(NEWEST) as (client, host), asyncio.timeout(5):
        await hear_of_greeting(client, host)


@contextlib.asynccontextmanager
async def started_again(revision: Revision) -> AsyncIterator[tuple[MCPClient, Host]]:
    """Connect our client, restart the server without its state, and yield the client."""
    host = Host()
    async with contextlib.AsyncExitStack() as stack:
        with served("official_http") as url:
            connecting = our_network_client(f"{url}/events", revision.value, **answering(host))
            client = await stack.enter_async_context(connecting)
            await client.set_log_level("debug")
            await client.subscribe("memo://greeting")
        with served("official_http", port_of(url)):
            yield client, host
            await stack.aclose()


async def hear_of_greeting(client: MCPClient, host: Host) -> None:
    """Touch the resource until its update is received, because the stream may not be open yet."""
    while (visits.UPDATED, "memo://greeting") not in host.heard:
        await visits.text_of(client, "touch", uri="memo://greeting")
