"""The code on the authoring page, which must behave as described there."""

import re
from pathlib import Path
from typing import Any

from tests.support.raw_server_client import wire_to

PAGE = Path(__file__).parents[3] / "docs" / "authoring.md"


async def test_the_code_on_the_authoring_page_runs() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), str(PAGE), "exec", dont_inherit=True), names)
    everything = names["everything"]
    async with everything.running(), wire_to(everything) as wire:
        await wire.greet()
        uri = "library://books/1?format=long"
        read = (await wire.ask("resources/read", {"uri": uri}))["result"]["contents"][0]["text"]
        assert read == '{"number":1,"state":"free","format":"long"}'
        call = {"name": "library_lend", "arguments": {"number": 1}}
        lent = (await wire.ask("tools/call", call))["result"]
        assert lent["content"][0]["text"] == "book 1 is yours"
        given = {"name": "library_recommend", "arguments": {"reader": "Ada", "count": "2"}}
        got = (await wire.ask("prompts/get", given))["result"]
        assert got["messages"][0]["content"]["text"] == "Recommend 2 merry books for Ada."
        given = {"name": "library_discuss", "arguments": {"titles": '["Emma", "Ulysses"]'}}
        got = (await wire.ask("prompts/get", given))["result"]["messages"]
        assert [(one["role"], one["content"]["text"]) for one in got] == [
            ("user", "Compare Emma and Ulysses."),
            ("assistant", "Gladly."),
        ]
        ref = {"type": "ref/prompt", "name": "library_recommend"}
        typed = {"ref": ref, "argument": {"name": "reader", "value": "A"}}
        found = (await wire.ask("completion/complete", typed))["result"]["completion"]
        assert found["values"] == ["Ada", "Alan"]
        opened = (await wire.ask("tools/call", {"name": "db_status"}))["result"]
        assert opened["content"][0]["text"] == "open"
    async with wire_to(names["shop"]) as wire:
        await wire.greet(asks=True)
        call = {"name": "order", "arguments": {"item": "tea", "count": "2"}}
        ordered = (await wire.ask("tools/call", call))["result"]
        assert ordered["structuredContent"] == {"item": "tea", "price": 5.0}
        call = {"name": "order", "arguments": {"item": "tea", "count": 0}}
        assert "Take one" in (await wire.ask("tools/call", call))["result"]["content"][0]["text"]
        call = {"name": "look_up", "arguments": {"sku": "tea"}}
        looked = (await wire.ask("tools/call", call))["result"]
        assert looked["content"][0]["text"] == "tea: in stock"
        call = {"name": "count_stock", "arguments": {"shelves": 4}}
        assert (await wire.ask("tools/call", call))["result"]["content"][0]["text"] == "6"
        token = {"progressToken": "p"}
        call = {"name": "deliver", "arguments": {"street": "High Street"}, "_meta": token}
        wire.send("tools/call", call, id=7)
        told = [(await wire.next())["params"] for _ in range(3)]
        assert [t.get("message") for t in told] == ["packed", None, "On its way. "]
        question = await wire.next()
        given = {"action": "accept", "content": {"value": True}}
        wire.answer(question["id"], given)
        text = (await wire.next())["result"]["content"][0]["text"]
        assert text == "On its way. Open 9 to 5. Bell: True"
    async with wire_to(names["guarded"]) as wire:
        await wire.greet()
        refused = await wire.ask("tools/call", {"name": "secret"})
        assert refused["error"]["message"] == "'secret' is not available here"
    assert await get(names["site"], "/shelf/tools", b"wrong") == (401, b"")
    status, body = await get(names["site"], "/shelf/tools", b"open-sesame")
    assert (status, b'"lend"' in body) == (200, True)
    await names["shelf"].close()
    assert await names["count"]() == "2"
    assert names["shared"].tool_count == 1


async def get(app: Any, path: str, token: bytes) -> tuple[int, bytes]:
    """Return status and body of an ASGI application's response, or only an error status."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer " + token)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    status = sent[0]["status"]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return status, body if status == 200 else b""
