"""The server that the official conformance suite tests.

    python tests/conformance/server.py --port 3000

Names, texts and URIs are those that the suite expects. Everything is written as an author would
write it, and serves both eras at one URL.
"""

import argparse
import asyncio
import base64
import contextlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fairlead import Context, MCPServer, MCPToolError, RpcError
from fairlead.errors import CannotAsk
from fairlead.protocol.types.content import EmbeddedResource, ResourceContents
from fairlead.server import Audio, Header, Image

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")
PAUSE = 0.05  # seconds between two messages

server = MCPServer("fairlead-conformance", version="1.0.0", rate_limit_rate=0)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=mime_type, text=text))


# Tools with results. The suite calls the first one without arguments.


@server.tool("test_simple_text")
def simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@server.tool("test_image_content")
def image_content() -> Image:
    """Return an image."""
    return Image(PNG)


@server.tool("test_audio_content")
def audio_content() -> Audio:
    """Return audio."""
    return Audio(WAV, format="wav")


@server.tool("test_embedded_resource")
def embedded_resource() -> EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool("test_multiple_content_types")
def multiple_content_types() -> list[Any]:
    """Return several kinds of content."""
    data = json.dumps({"test": "data", "value": 123})
    return [
        "Multiple content types test:",
        Image(PNG),
        embedded("test://mixed-content-resource", data, "application/json"),
    ]


@server.tool("test_error_handling")
def error_handling() -> str:
    """Raise an error."""
    raise MCPToolError("This tool intentionally returns an error for testing")


@server.tool("test_tool_with_progress")
async def tool_with_progress(ctx: Context) -> str:
    """Report progress."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(PAUSE)
    return "done"


@server.tool("test_tool_with_logging")
async def tool_with_logging(ctx: Context) -> str:
    """Log each step."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await asyncio.sleep(PAUSE)
    return "Tool with logging executed successfully"


@server.tool("test_logging_tool")
async def logging_tool(ctx: Context) -> str:
    """Log one message."""
    await ctx.info("test_logging_tool was called")
    return "logged"


@server.tool("test_reconnection")
async def reconnection(ctx: Context) -> str:
    """Close the stream, and return the result when the client has reconnected."""
    ctx.close_stream()
    await asyncio.sleep(2 * PAUSE)
    return "Reconnection test completed successfully"


@server.tool(name="test_x_mcp_header")
def x_mcp_header(region: Annotated[str, "Where", Header("Region")] = "") -> str:
    """Return an argument that is also sent as a header."""
    return f"region: {region}"


def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Return the arguments, whose schema has every keyword of JSON Schema 2020-12."""
    return json.dumps(arguments)


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
server.register_tool("json_schema_2020_12_tool", SCHEMA_2020_12, json_schema_2020_12_tool)


# Tools that change lists


@server.tool("test_trigger_tool_change")
async def trigger_tool_change() -> str:
    """Add a tool and remove it again."""
    server.register_tool("test_passing_tool", {"type": "object"}, simple_text)
    server.remove_tool("test_passing_tool")
    return "the list of tools has changed"


@server.tool("test_trigger_prompt_change")
async def trigger_prompt_change() -> str:
    """Add a prompt and remove it again."""
    server.register_prompt("test_passing_prompt", "A temporary prompt")
    server.remove_prompt("test_passing_prompt")
    return "the list of prompts has changed"


# Tools that send requests to the client during a call


@dataclass
class Account:
    username: Annotated[str, "User's response"]
    email: Annotated[str, "User's email address"]


@dataclass
class Profile:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@dataclass
class Name:
    name: str


@dataclass
class Color:
    color: str


@dataclass
class Background:
    context: str


@dataclass
class Confirmation:
    ok: bool


OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": name, "title": name.replace("n", "n ").title()} for name in OPTIONS]
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


def told(answer: Any) -> str:
    return f"action={answer.action}, content={answer.data}"


def text_of(sampled: dict[str, Any]) -> str:
    return str(sampled["content"]["text"])


@server.tool("test_sampling")
async def sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    return f"LLM response: {text_of(await ctx.sample(prompt, max_tokens=100))}"


@server.tool("test_elicitation")
async def elicitation(message: str, ctx: Context) -> str:
    """Ask the user."""
    return f"User response: {told(await ctx.elicit(message, Account))}"


@server.tool("test_elicitation_sep1034_defaults")
async def elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form that has defaults."""
    answer = await ctx.elicit("Please review and update the form", Profile)
    return f"Elicitation completed: {told(answer)}"


@server.tool("test_elicitation_sep1330_enums")
async def elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user with a form that has every kind of choice."""
    try:
        return f"Elicitation completed: {told(await ctx.elicit('Please choose', ENUMS))}"
    except RpcError as exc:  # the suite returns a value that is not in the form
        return f"Elicitation completed: {exc.message}"


@server.tool("test_missing_capability")
async def missing_capability(ctx: Context) -> str:
    """Ask the client's model; fail if the client does not support sampling."""
    return text_of(await ctx.sample("Say hello"))


@server.tool("test_streaming_elicitation")
async def streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask the user."""
    await ctx.progress(1, 2, "about to ask")
    return told(await ctx.elicit("Please enter your name", Name, key="user_name"))


@server.tool("test_input_required_result_elicitation")
async def input_required_result_elicitation(ctx: Context) -> str:
    """Greet the user by name."""
    answer = await ctx.elicit("Please enter your name", Name, key="user_name")
    return f"Hello, {answer.data.name if answer.data else 'stranger'}!"


@server.tool("test_input_required_result_sampling")
async def input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    return text_of(await ctx.sample("Name the capital of France", key="capital_question"))


@server.tool("test_input_required_result_list_roots")
async def input_required_result_list_roots(ctx: Context) -> str:
    """Return the client's roots."""
    return ", ".join(root["uri"] for root in await ctx.roots(key="client_roots")) or "no roots"


@server.tool("test_input_required_result_request_state")
async def input_required_result_request_state(ctx: Context) -> str:
    """Keep state while asking the user."""
    before = await ctx.step("state", lambda: "state-ok")
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"{before}: {told(answer)}"


@server.tool("test_input_required_result_multiple_inputs")
async def input_required_result_multiple_inputs(ctx: Context) -> str:
    """Send three requests at once."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("Please enter your name", Name, key="user_name"),
        ctx.sample("Write a greeting", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{told(name)}; {text_of(greeting)}; {len(roots)} roots"


@server.tool("test_input_required_result_multi_round")
async def input_required_result_multi_round(ctx: Context) -> str:
    """Ask the user two questions in sequence."""
    name = await ctx.elicit("Step 1: what is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: what is your favorite color?", Color, key="step2")
    return f"{told(name)}; {told(color)}"


@server.tool("test_input_required_result_tampered_state")
async def input_required_result_tampered_state(ctx: Context) -> str:
    """Ask the user with a request state that cannot be forged."""
    return told(await ctx.elicit("Please confirm", Confirmation, key="confirm"))


@server.tool("test_input_required_result_capabilities")
async def input_required_result_capabilities(ctx: Context) -> str:
    """Send every request that the client supports."""
    answers = []
    for ask in (
        lambda: ctx.sample("Say hello", max_tokens=50, key="greeting"),
        lambda: ctx.elicit("Please enter your name", Name, key="user_name"),
    ):
        with contextlib.suppress(CannotAsk):
            answers.append(str(await ask()))
    return "; ".join(answers) or "the client supports no requests"


# Resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """Constant text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Constant image."""
    return PNG


@server.resource("test://watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """Text to which clients can subscribe."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data of a resource with an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt("test_simple_prompt")
def simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt("test_prompt_with_arguments")
def prompt_with_arguments(
    arg1: Annotated[str, "First test argument"], arg2: Annotated[str, "Second test argument"]
) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(typed: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(typed)]


@server.prompt(name="test_prompt_with_embedded_resource")
def prompt_with_embedded_resource(
    resourceUri: Annotated[
        str, "URI of the resource to embed"
    ],  # this spelling is required by the suite
) -> list[Any]:
    """A prompt with a resource."""
    content = embedded(resourceUri, "Embedded resource content for testing.")
    return [content, "Please process the embedded resource above."]


@server.prompt("test_prompt_with_image")
def prompt_with_image() -> list[Any]:
    """A prompt with an image."""
    return [Image(PNG), "Please analyze the image above."]


@server.prompt("test_input_required_result_prompt")
async def input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user for its context."""
    answer = await ctx.elicit("Please describe the context", Background, key="user_context")
    return f"Use this context: {answer.data.context if answer.data else 'none'}"


async def serve(port: int, answers: Literal["auto", "sse"]) -> None:
    def started(url: str) -> None:
        print(url, flush=True)

    await server.run_http(port=port, started=started, answers=answers, retry=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description="The server for the conformance suite.")
    parser.add_argument("--port", type=int, default=0, help="0 selects a free port")
    parser.add_argument("--answers", choices=("auto", "sse"), default="auto")
    parser.add_argument("--stdio", action="store_true", help="serve on pipes, for a relay")
    given = parser.parse_args()
    if given.stdio:
        server.run()
        return
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(given.port, given.answers))


if __name__ == "__main__":
    main()
