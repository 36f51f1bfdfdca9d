"""Our client against a server made with the official Python SDK, over HTTP, in every revision.

The features are those of the tests on pipes, on another stage.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlead import MCPClient
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from tests.interop.test_official_server import (
    test_a_question_that_we_refuse_ends_the_call,
    test_all_its_questions_of_one_call_are_answered,
    test_calls_end_in_results_or_errors,
    test_giving_up_stops_its_handler,
    test_giving_up_takes_the_open_question_back,
    test_it_borrows_our_model_and_our_folders,
    test_it_completes_what_we_type,
    test_it_is_told_where_we_work_now,
    test_it_may_ask_whether_we_are_there,
    test_its_resources_and_prompts_may_ask_too,
    test_its_structured_content_fits_its_schema,
    test_its_templates_are_listed_and_read,
    test_many_of_its_calls_may_ask_at_once,
    test_much_talk_comes_in_order,
    test_our_model_may_use_its_tools,
    test_our_user_fills_in_its_forms_or_not,
    test_our_user_opens_its_pages_or_not,
    test_we_hear_of_resources_we_subscribed_to,
    test_we_hear_that_its_lists_have_changed,
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
    "test_a_question_that_we_refuse_ends_the_call",
    "test_all_its_questions_of_one_call_are_answered",
    "test_calls_end_in_results_or_errors",
    "test_giving_up_stops_its_handler",
    "test_giving_up_takes_the_open_question_back",
    "test_it_borrows_our_model_and_our_folders",
    "test_it_completes_what_we_type",
    "test_it_is_told_where_we_work_now",
    "test_it_may_ask_whether_we_are_there",
    "test_its_resources_and_prompts_may_ask_too",
    "test_its_structured_content_fits_its_schema",
    "test_its_templates_are_listed_and_read",
    "test_many_of_its_calls_may_ask_at_once",
    "test_much_talk_comes_in_order",
    "test_our_model_may_use_its_tools",
    "test_our_user_fills_in_its_forms_or_not",
    "test_our_user_opens_its_pages_or_not",
    "test_we_hear_of_resources_we_subscribed_to",
    "test_we_hear_that_its_lists_have_changed",
]

# Every revision at least once; with an event store its events have ids, and nothing else changes.
STAGES = TALKATIVE + [("events", revision) for revision in HANDSHAKE[:-1]]
STAGES += [("sse", HANDSHAKE[0]), ("resumable", NEWEST_HANDSHAKE)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The official server that has everything, served in every way."""
    with served("official_http") as url:
        yield url


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def visit(request: pytest.FixtureRequest, url: str) -> Iterator[Stage[MCPClient]]:
    """Our client at it, where it can tell and ask in the middle of a call."""
    way, revision = request.param
    with our_network_visit(f"{url}/{way}", revision) as stage:
        yield stage


@pytest.fixture(scope="module", params=TERSE, ids="-".join)
def terse(request: pytest.FixtureRequest, url: str) -> Iterator[Stage[MCPClient]]:
    """Our client at it, where it answers with JSON or keeps no sessions."""
    way, revision = request.param
    with our_network_visit(f"{url}/{way}", revision) as stage:
        yield stage


@pytest.mark.covers("HTT-03")
async def test_a_terse_server_has_the_same_offers(terse: Stage[MCPClient]) -> None:
    await test_calls_end_in_results_or_errors(terse)
    await visits.read_templates(terse)
    await visits.complete_arguments(terse)
    await visits.get_structured_content(terse)
    assert terse.client.skipped == []


async def test_a_terse_server_may_ask_in_the_stateless_era(terse: Stage[MCPClient]) -> None:
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


async def test_a_terse_server_tells_nothing_before_the_answer(terse: Stage[MCPClient]) -> None:
    steps: list[object] = []
    counted = await terse.client.call(
        "count", {"to": 2}, on_progress=lambda *step: steps.append(step)
    )
    assert counted.text == "counted to 2"
    told = [(1, 2, "step 1"), (2, 2, "step 2")] if terse.way == "stateless" else []
    assert steps == told


@pytest.mark.covers("PRO-31")
async def test_a_terse_server_stops_when_we_give_up(terse: Stage[MCPClient]) -> None:
    if terse.way == "json" and terse.revision.stateless:
        return  # where it does not notice that nobody waits for its JSON any more
    with pytest.raises(RequestTimeout):
        await terse.client.call("wait", timeout=0.1)
    assert await visits.text_of(terse.client, "was_stopped") == "stopped"


@pytest.mark.covers("PRO-16", "PRO-23")
async def test_a_terse_server_tells_of_changes_on_a_stream_of_its_own(
    terse: Stage[MCPClient],
) -> None:
    if terse.way == "stateless" and not terse.revision.stateless:
        return  # without a session there is none
    await visits.hear_of_updates(terse)
    await visits.hear_of_lists(terse)


@pytest.mark.covers("HTT-21", "SSE-03")
@pytest.mark.parametrize("mode", ["http", "sse"])
async def test_its_older_transport_is_found_or_asked_for(mode: str, url: str) -> None:
    async with our_network_client(f"{url}/sse", "latest", mode=mode) as client:
        assert await visits.text_of(client, "add", a=2, b=40) == "42"


@pytest.mark.parametrize("way", ["events", "json", "stateless"])
async def test_we_find_out_its_era(way: str, url: str) -> None:
    async with our_network_client(f"{url}/{way}", "auto") as client:
        assert client.protocol_version == NEWEST
    async with our_network_client(f"{url}/{way}", "latest") as client:
        assert client.protocol_version == NEWEST_HANDSHAKE


@pytest.mark.covers("HTT-05")
async def test_a_call_outlives_the_connection_that_it_was_made_on(url: str) -> None:
    steps: list[object] = []
    async with our_network_client(f"{url}/resumable", NEWEST_HANDSHAKE.value) as client:
        before = int(await visits.text_of(client, "replays"))
        result = await client.call("hang_up", on_progress=lambda *step: steps.append(step))
        assert int(await visits.text_of(client, "replays")) == before + 1

    assert result.text == "still here"
    assert steps == [(1, 3, "before"), (2, 3, "meanwhile"), (3, 3, "after")]


@pytest.mark.covers("HTT-08")
async def test_we_go_on_in_a_new_session_when_it_was_started_again() -> None:
    async with started_again(NEWEST_HANDSHAKE) as (client, host):
        assert await visits.text_of(client, "add", a=2, b=40) == "42"
        await hear_of_greeting(client, host)  # and it knows what we want to hear
        await visits.text_of(client, "count", to=1)
        await host.hears(("debug", "count", "step 1"))


async def test_we_go_on_without_a_session_when_it_was_started_again() -> None:
    async with started_again(NEWEST) as (client, host):
        assert await visits.text_of(client, "add", a=2, b=40) == "42"
        await visits.text_of(client, "count", to=1)
        await host.hears(("debug", "count", "step 1"))


async def test_we_listen_again_when_it_was_started_again() -> None:
    async with started_again(NEWEST) as (client, host), asyncio.timeout(5):
        await hear_of_greeting(client, host)


@contextlib.asynccontextmanager
async def started_again(revision: Revision) -> AsyncIterator[tuple[MCPClient, Host]]:
    """Our client at a server that ended and was started again, and has forgotten everything."""
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
    """Change it until we are told; the stream for that may be on its way."""
    while (visits.UPDATED, "memo://greeting") not in host.heard:
        await visits.text_of(client, "touch", uri="memo://greeting")
