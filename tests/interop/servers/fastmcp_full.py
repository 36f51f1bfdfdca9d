"""The same server as `ours.py` and `ours_full.py`, made with FastMCP."""

import asyncio
import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from fastmcp import Context, FastMCP
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    CompletionArgument,
    CompletionContext,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequest,
    InputRequiredResult,
    InputResponse,
    ListRootsRequest,
    PromptListChangedNotification,
    PromptReference,
    ResourceListChangedNotification,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
    ToolListChangedNotification,
)

# sampling and roots are deprecated but still supported
warnings.simplefilter("ignore", MCPDeprecationWarning)

PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
PAGE = "https://example.com/sign-in?a=1&b=2"
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 30}},
    "required": ["name"],
}
QUESTION = SamplingMessage(role="user", content=TextContent(text="Add 2 and 2."))

server = FastMCP("fastmcp", version="1.2.3", instructions="Say hello first.", list_page_size=5)
waiting: set[str] = set()
nobody_waits = asyncio.Event()
nobody_waits.set()


@dataclass
class Visitor:
    name: str
    age: int = 30


@dataclass
class Weight:
    grams: int
    heavy: bool


@contextlib.contextmanager
def under_way(ctx: Context) -> Iterator[None]:
    """Track a call for `was_stopped`."""
    waiting.add(ctx.request_id)
    nobody_waits.clear()
    try:
        yield
    finally:
        waiting.discard(ctx.request_id)
        if not waiting:
            nobody_waits.set()


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Count, and report each step."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
        await ctx.log(f"step {step}", "debug" if step % 2 else "warning", logger_name="count")
    return f"counted to {to}"


@server.tool
async def fail() -> str:
    """Fail always."""
    raise RuntimeError("it broke")


@server.tool
async def wait(ctx: Context) -> str:
    """Report progress, then wait until the call is cancelled."""
    with under_way(ctx):
        await ctx.report_progress(1, message="begun")
        await asyncio.Event().wait()
    return "never"


@server.tool
async def was_stopped() -> str:
    """Return once no `wait` call is in progress."""
    async with asyncio.timeout(5):
        await nobody_waits.wait()
    return "stopped"


def asked(ctx: Context) -> InputResponse | None:
    """Return the client's response to the input request of the previous round."""
    return (ctx.input_responses or {}).get("it")


def asking(request: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests={"it": request})


def stateless(ctx: Context) -> bool:
    return ctx.request_context.protocol_version == "2026-07-28"


@server.tool(output_schema=None)
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Ask the user who they are; stateless FastMCP tools handle the input rounds themselves."""
    if stateless(ctx):
        if (answer := asked(ctx)) is None:
            params = ElicitRequestFormParams(
                message="Please enter your name.", requested_schema=FORM
            )
            return asking(ElicitRequest(params=params))
        given = answer.content and Visitor(**answer.content)
    else:
        answer = await ctx.elicit("Please enter your name.", Visitor)
        given = answer.data if answer.action == "accept" else None
    return f"accept {given.name} {given.age}" if given else answer.action


@server.tool(output_schema=None)
async def ask_patiently(ctx: Context) -> str | InputRequiredResult:
    """Ask as `ask` does, tracked by `was_stopped`."""
    with under_way(ctx):
        return await ask(ctx)


@server.tool(output_schema=None)
async def open_page(ctx: Context) -> str | InputRequiredResult:
    """Ask the user to open a page."""
    if not stateless(ctx):
        return (await ctx.session.elicit_url("Please sign in.", PAGE, "page-1")).action
    if (answer := asked(ctx)) is None:
        params = ElicitRequestURLParams(message="Please sign in.", url=PAGE)
        return asking(ElicitRequest(params=params))
    return answer.action


@server.tool(output_schema=None)
async def think(ctx: Context) -> str | InputRequiredResult:
    """Ask the client's model."""
    if not stateless(ctx):
        answer = await ctx.session.create_message(
            [QUESTION], max_tokens=10, system_prompt="Be brief."
        )
    elif (answer := asked(ctx)) is None:
        params = CreateMessageRequestParams(
            messages=[QUESTION], max_tokens=10, system_prompt="Be brief."
        )
        return asking(CreateMessageRequest(params=params))
    return answer.content.text


@server.tool(output_schema=None)
async def look_around(ctx: Context) -> str | InputRequiredResult:
    """Return the client's roots."""
    if not stateless(ctx):
        answer = await ctx.session.list_roots()
    elif (answer := asked(ctx)) is None:
        return asking(ListRootsRequest())
    return " ".join(str(root.uri) for root in answer.roots)


@server.tool
async def ping_back(ctx: Context) -> str:
    """Ping the client, in the era in which servers may send requests."""
    await ctx.session.send_ping()
    return "pong"


@server.tool
def many(to: int) -> list[int]:
    """Return structured content that is not an object."""
    return list(range(to))


@server.tool
def weigh(grams: int) -> Weight:
    """Return a value with an output schema."""
    return Weight(grams=grams, heavy=grams > 1000)


@server.tool
async def grow(ctx: Context) -> str:
    """Announce changes of all lists."""
    await ctx.send_notification(ToolListChangedNotification())
    await ctx.send_notification(ResourceListChangedNotification())
    await ctx.send_notification(PromptListChangedNotification())
    return "grown"


@server.resource("memo://greeting", name="greeting")
def greeting() -> str:
    return "Grüße, 世界 🌍"


@server.resource("memo://pixel", name="pixel", mime_type="image/png")
def pixel() -> bytes:
    return PIXEL


@server.resource("memo://notes/{number}", name="note", mime_type="text/plain")
def note(number: int) -> str:
    return f"note {number}"


@server.resource("memo://diary/{day}", name="diary")
async def diary(day: str, ctx: Context) -> str | InputRequiredResult:
    told = await ask(ctx)
    return f"{day}: {told}" if isinstance(told, str) else told


@server.prompt
async def dedicate(ctx: Context) -> str | InputRequiredResult:
    told = await ask(ctx)
    return f"Dedicate it: {told}" if isinstance(told, str) else told


@server.prompt(description="Greets a person.")
async def greet(name: str, mood: str = "happy") -> str:
    return f"Greet {name}, who is {mood}."


@server.prompt
def recommend(reader: str, mood: str = "merry") -> str:
    return f"Recommend a {mood} book for {reader}."


@server.completion
def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> list[str]:
    others = (context.arguments if context else None) or {}
    values = ["1", "12", "2"]
    if isinstance(ref, PromptReference):
        values = ["Ada", "Alan"] if others.get("mood") != "sad" else ["Alas"]
    return [value for value in values if value.startswith(argument.value)]


if __name__ == "__main__":
    server.run(show_banner=False, log_level="CRITICAL")
