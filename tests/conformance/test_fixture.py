"""Tests of the conformance server with plain HTTP.

Unlike the suite, these tests do not need npm, and they are stricter: the suite accepts any error
text as the result of a failing tool, even that of an unknown tool.
"""

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conformance.fixture import serving

META = "io.modelcontextprotocol/"
CAPABILITIES: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"sampling": {}, "elicitation": {}},
    "clientInfo": {"name": "test", "version": "1"},
}


class Client:
    """A client that opens a connection for each request."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._open: list[HTTPConnection] = []
        self.headers: dict[str, str] = {}

    def send(
        self, verb: str = "POST", message: dict[str, Any] | None = None, **headers: str
    ) -> HTTPResponse:
        connection = HTTPConnection(self._url.hostname or "", self._url.port, timeout=10)
        self._open.append(connection)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = None if message is None else json.dumps({"jsonrpc": "2.0", **message})
        connection.request(verb, self._url.path, body, sent)
        return connection.getresponse()

    def ask(self, method: str, **params: Any) -> Any:
        """Send a handshake-era request and return the result."""
        response = self.send(message={"id": 1, "method": method, "params": params})
        return answer_of(response)["result"]

    def stateless(
        self, method: str, capabilities: Any = CAPABILITIES, **params: Any
    ) -> HTTPResponse:
        about = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": capabilities}
        headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
        if name := params.get("name") or params.get("uri"):
            headers["Mcp_Name"] = name
        message = {"id": 7, "method": method, "params": {**params, "_meta": about}}
        return self.send(message=message, **headers)

    def call(self, name: str, capabilities: Any = CAPABILITIES, **params: Any) -> Any:
        """Send a stateless tool call and return the complete response."""
        return answer_of(self.stateless("tools/call", capabilities, name=name, **params))

    def begin(self) -> None:
        """Open a session."""
        response = self.send(message={"id": 0, "method": "initialize", "params": HELLO})
        self.headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
        self.headers["MCP-Protocol-Version"] = "2025-11-25"
        told = self.send(message={"method": "notifications/initialized"})
        assert (response.status, told.status) == (200, 202)

    def close(self) -> None:
        for connection in self._open:
            connection.close()


def events(response: HTTPResponse) -> Iterator[dict[str, str]]:
    """Yield the server-sent events of a response as they arrive."""
    assert response.headers["Content-Type"] == "text/event-stream"
    event: dict[str, str] = {}
    while line := response.readline().decode():
        if line.strip():
            name, _, value = line.strip().partition(":")
            event[name] = value.strip()
        elif event:
            yield event
            event = {}


def answer_of(response: HTTPResponse) -> Any:
    """Return the JSON-RPC response, plain or at the end of a stream."""
    if response.headers["Content-Type"] == "text/event-stream":
        return json.loads(list(events(response))[-1]["data"])
    return json.loads(response.read())


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as where:
        yield where


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    client = Client(url)
    yield client
    client.close()


def test_a_session_can_be_opened_used_and_ended(client: Client) -> None:
    client.begin()
    tools = [tool["name"] for tool in client.ask("tools/list")["tools"]]
    assert tools[0] == "test_simple_text"  # the suite calls the first tool without arguments
    assert len(tools) == len(set(tools)) >= 20
    assert text_of(client.ask("tools/call", name=tools[0])).startswith("This is a simple text")
    failed = client.ask("tools/call", name="test_error_handling", arguments={})
    assert failed["isError"] is True
    assert "intentionally" in text_of(failed)
    assert client.send("DELETE").status == 200
    assert client.send(message={"id": 2, "method": "ping"}).status == 404


def test_a_tool_sends_requests_on_the_stream_of_its_call(client: Client) -> None:
    client.begin()
    params = {"name": "test_sampling", "arguments": {"prompt": "Say something"}}
    heard = events(client.send(message={"id": 1, "method": "tools/call", "params": params}))
    question = next(json.loads(event["data"]) for event in heard if event.get("data"))
    assert question["method"] == "sampling/createMessage"
    assert question["params"]["messages"][0]["content"]["text"] == "Say something"
    said = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "something"}}
    assert client.send(message={"id": question["id"], "result": said}).status == 202
    assert text_of(json.loads(next(heard)["data"])["result"]) == "LLM response: something"
    assert list(heard) == []


def test_a_stream_that_the_server_closed_can_be_resumed(client: Client) -> None:
    client.begin()
    params = {"name": "test_reconnection", "arguments": {}}
    response = client.send(message={"id": 1, "method": "tools/call", "params": params})
    (priming,) = events(response)
    assert priming.get("data", "") == ""
    assert int(priming["retry"]) > 0
    again = client.send("GET", Last_Event_ID=priming["id"])
    assert "completed" in text_of(json.loads(next(events(again))["data"])["result"])


def test_a_stateless_call_requests_input_in_rounds(client: Client) -> None:
    tool = "test_input_required_result_multi_round"
    first = client.call(tool)["result"]
    assert (first["resultType"], list(first["inputRequests"])) == ("input_required", ["step1"])
    given = {"step1": {"action": "accept", "content": {"name": "Ada"}}}
    second = client.call(tool, inputResponses=given, requestState=first["requestState"])["result"]
    assert list(second["inputRequests"]) == ["step2"]
    assert second["requestState"] != first["requestState"]
    forged = second["requestState"] + "-TAMPERED"
    assert client.call(tool, requestState=forged)["error"]["code"] == -32602
    given = {"step2": {"action": "accept", "content": {"color": "red"}}}
    third = client.call(tool, inputResponses=given, requestState=second["requestState"])["result"]
    assert third["resultType"] == "complete"
    assert "Ada" in text_of(third)
    assert "red" in text_of(third)


def test_errors_in_the_stateless_era_have_the_specified_http_status(client: Client) -> None:
    def refused(response: HTTPResponse) -> tuple[int, int]:
        answer = answer_of(response)
        assert answer["id"] == 7
        return response.status, answer["error"]["code"]

    missing = client.stateless("tools/call", {}, name="test_missing_capability")
    assert refused(missing) == (400, -32021)
    assert refused(client.stateless("ping")) == (404, -32601)
    assert client.call("no_such_tool")["error"]["code"] == -32602
    region = {"name": "test_x_mcp_header", "arguments": {"region": "north"}}
    assert refused(client.stateless("tools/call", **region)) == (400, -32020)
    client.headers = {"Mcp-Param-Region": "north"}
    assert client.stateless("tools/call", **region).status == 200
    client.headers = {"Host": "evil.example.com"}
    assert client.stateless("tools/list").status == 403


def test_a_listen_stream_delivers_the_requested_changes(client: Client) -> None:
    wanted = {"toolsListChanged": True}
    heard = events(client.stateless("subscriptions/listen", notifications=wanted))
    acknowledged = json.loads(next(heard)["data"])
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    client.call("test_trigger_prompt_change")  # the client did not subscribe to prompt list changes
    client.call("test_trigger_tool_change")
    change = json.loads(next(heard)["data"])
    assert change["method"] == "notifications/tools/list_changed"
    assert change["params"]["_meta"][f"{META}subscriptionId"] == 7
