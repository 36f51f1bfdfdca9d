"""Checks of Fairlead's client with a full-featured server of any implementation."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPClient, RpcError
from fairlead.errors import RequestTimeout
from tests.support.interop.server_processes import FOLDER, PAGE, Stage

UPDATED = "notifications/resources/updated"
LISTS = [(f"notifications/{kind}/list_changed", None) for kind in ("tools", "resources", "prompts")]


async def text_of(client: MCPClient, tool: str, **arguments: Any) -> str:
    result = await client.call(tool, arguments)
    assert not result.is_error, result.text
    return result.text


async def refusal(asked: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await asked
    return caught.value


async def fill_in_forms(visit: Stage[MCPClient]) -> None:
    said = []
    for visit.host.action in ("accept", "decline", "cancel"):
        said.append(await text_of(visit.client, "ask"))

    assert said == ["accept Ada 36", "decline", "cancel"]
    question = visit.host.asked[0]
    assert (question.message, question.mode, question.url) == (
        "Please enter your name.",
        "form",
        None,
    )
    assert list(question.schema["properties"]) == ["name", "age"]
    assert question.schema["required"] == ["name"]


async def open_pages(visit: Stage[MCPClient]) -> None:
    said = []
    for visit.host.action in ("accept", "decline", "cancel"):
        said.append(await text_of(visit.client, "open_page"))

    assert said == ["accept", "decline", "cancel"]
    question = visit.host.asked[0]
    assert (question.message, question.mode, question.url) == ("Please sign in.", "url", PAGE)
    assert question.elicitation_id == (None if visit.revision.stateless else "page-1")


async def lend_model_and_folders(visit: Stage[MCPClient]) -> None:
    assert await text_of(visit.client, "think") == "four"
    assert await text_of(visit.client, "look_around") == FOLDER
    (params,) = visit.host.asked
    assert (params["maxTokens"], params["systemPrompt"]) == (10, "Be brief.")
    assert params["messages"][0]["content"]["text"] == "Add 2 and 2."


async def answer_while_reading(visit: Stage[MCPClient]) -> None:
    """Answer elicitations while a resource is read and while a prompt is requested."""
    (diary,) = await visit.client.read("memo://diary/monday")
    prompt = await visit.client.get_prompt("dedicate")

    assert diary.text.startswith("monday: accept Ada")
    assert prompt["messages"][0]["content"]["text"].startswith("Dedicate it: accept Ada")
    assert [question.message for question in visit.host.asked] == ["Please enter your name."] * 2


async def answer_many_at_once(visit: Stage[MCPClient]) -> None:
    told = await asyncio.gather(*(text_of(visit.client, "ask") for _ in range(20)))
    assert told == ["accept Ada 36"] * 20


async def give_up_while_asked(visit: Stage[MCPClient]) -> None:
    visit.host.action = "think"
    asking = asyncio.create_task(visit.client.call("ask_patiently"))
    await visit.host.hears("asked")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await visit.host.hears("let go")
    assert await text_of(visit.client, "was_stopped") == "stopped"


async def move_elsewhere(visit: Stage[MCPClient]) -> None:
    visit.host.folder = "file:///elsewhere"
    await visit.client.roots_changed()
    assert await text_of(visit.client, "look_around") == "file:///elsewhere"


async def read_templates(visit: Stage[MCPClient]) -> None:
    templates = {t["name"]: t for t in await visit.client.list_resource_templates()}
    assert list(templates) == ["note", "diary"]
    assert templates["note"]["uriTemplate"] == "memo://notes/{number}"
    assert templates["note"]["mimeType"] == "text/plain"
    (contents,) = await visit.client.read("memo://notes/7")
    assert (contents.uri, contents.text) == ("memo://notes/7", "note 7")


async def complete_arguments(visit: Stage[MCPClient]) -> None:
    client = visit.client
    reader = await client.complete("prompt", "recommend", "reader", "A")
    number = await client.complete("resource", "memo://notes/{number}", "number", "1")
    sad = await client.complete("prompt", "recommend", "reader", "A", filled={"mood": "sad"})

    assert (reader.values, number.values) == (["Ada", "Alan"], ["1", "12"])
    assert sad.values == ["Alas"]


async def get_structured_content(visit: Stage[MCPClient]) -> None:
    (weigh,) = [tool for tool in await visit.client.tools() if tool.name == "weigh"]
    weighed = await visit.client.call("weigh", {"grams": 2000})

    assert b'"heavy"' in bytes(weigh.output_schema)
    assert weighed.structured == {"grams": 2000, "heavy": True}
    assert (await visit.client.call("many", {"to": 3})).structured == {"result": [0, 1, 2]}


async def hear_of_updates(visit: Stage[MCPClient]) -> None:
    client, host = visit.client, visit.host
    await client.subscribe("memo://greeting")
    await client.subscribe("memo://pixel")
    await text_of(client, "touch", uri="memo://greeting")
    await host.hears((UPDATED, "memo://greeting"))

    host.reset()
    await client.unsubscribe("memo://greeting")
    await text_of(client, "touch", uri="memo://greeting")
    await text_of(client, "touch", uri="memo://pixel")
    await host.hears((UPDATED, "memo://pixel"))
    await client.unsubscribe("memo://pixel")
    assert (UPDATED, "memo://greeting") not in host.heard


async def hear_of_lists(visit: Stage[MCPClient]) -> None:
    await visit.client.listen("tools", "prompts", "resources")
    await text_of(visit.client, "grow")
    await visit.host.hears(*LISTS)
    await visit.client.listen()


async def give_up(visit: Stage[MCPClient]) -> None:
    begun = asyncio.Event()
    waiting = asyncio.create_task(visit.client.call("wait", on_progress=lambda *_: begun.set()))
    await begun.wait()
    assert await text_of(visit.client, "echo", text="not held up") == "not held up"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await text_of(visit.client, "was_stopped") == "stopped"

    with pytest.raises(RequestTimeout, match="timeout after 200ms"):
        await visit.client.call("wait", timeout=0.2)
    assert await text_of(visit.client, "was_stopped") == "stopped"
