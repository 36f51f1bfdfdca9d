"""`official.py` with server requests, templates and changes, equivalent to `ours_full.py`."""

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import (
    AcceptedElicitation,
    Elicit,
    ElicitationResult,
    ListRoots,
    Resolve,
    Sample,
)
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    EmptyResult,
    InputRequiredResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    SubscribeRequestParams,
    TextContent,
    Tool,
    ToolChoice,
    UnsubscribeRequestParams,
)
from official import server, under_way
from pydantic import BaseModel

PAGE = "https://example.com/sign-in?a=1&b=2"
subscribed: set[str] = set()


class Visitor(BaseModel):
    name: str
    age: int = 30


class Weight(BaseModel):
    grams: int
    heavy: bool


def who() -> Elicit[Visitor]:
    return Elicit("Please enter your name.", Visitor)


def sum_of_two() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(text="Add 2 and 2."))
    return Sample([question], max_tokens=10, system_prompt="Be brief.")


def tool_for_it() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(text="Add 2 and 2."))
    add = Tool(name="add", input_schema={"type": "object"})
    choice = ToolChoice(mode="required")
    return Sample([question], max_tokens=10, tools=[add], tool_choice=choice)


def where() -> ListRoots:
    return ListRoots()


Who = Annotated[ElicitationResult[Visitor], Resolve(who)]
Thought = Annotated[CreateMessageResult, Resolve(sum_of_two)]
ToolUse = Annotated[CreateMessageResultWithTools, Resolve(tool_for_it)]
Where = Annotated[ListRootsResult, Resolve(where)]


@server.tool()
async def ask(visitor: Who) -> str:
    """Ask the user who they are."""
    if isinstance(visitor, AcceptedElicitation):
        return f"accept {visitor.data.name} {visitor.data.age}"
    return visitor.action


@server.tool(structured_output=False)
async def ask_patiently(ctx: Context) -> str | InputRequiredResult:
    """Ask without a resolver, tracked by `was_stopped`."""
    with under_way(ctx):
        return await asked_by_hand(ctx)


async def asked_by_hand(ctx: Context) -> str | InputRequiredResult:
    if ctx.protocol_version != "2026-07-28":
        answer = await ctx.elicit("Please enter your name.", Visitor)
        return f"accept {answer.data.name}" if answer.action == "accept" else answer.action
    if ctx.input_responses:
        given = ctx.input_responses["who"]
        return f"accept {given.content['name']}" if given.action == "accept" else given.action
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = ElicitRequestFormParams(message="Please enter your name.", requested_schema=form)
    return InputRequiredResult(input_requests={"who": ElicitRequest(params=params)})


@server.tool(structured_output=False)
async def open_page(ctx: Context) -> str | InputRequiredResult:
    """Ask the user to open a page."""
    if ctx.protocol_version != "2026-07-28":
        answer = await ctx.elicit_url("Please sign in.", PAGE, "page-1")
        await ctx.session.send_elicit_complete("page-1")
        return answer.action
    if ctx.input_responses:
        return str(ctx.input_responses["page"].action)
    asked = ElicitRequest(params=ElicitRequestURLParams(message="Please sign in.", url=PAGE))
    return InputRequiredResult(input_requests={"page": asked})


@server.tool()
async def think(thought: Thought) -> str:
    """Ask the client's model."""
    return str(thought.content.text)


@server.tool()
async def think_with_tools(use: ToolUse) -> str:
    """Ask the client's model which tool it would use."""
    return str(use.content[0].name)


@server.tool()
async def look_around(roots: Where) -> str:
    """Return the client's roots."""
    return " ".join(str(root.uri) for root in roots.roots)


@server.tool()
async def interview(visitor: Who, thought: Thought, roots: Where) -> str:
    """Send several requests at once."""
    return " | ".join([await ask(visitor), await think(thought), await look_around(roots)])


@server.tool()
async def ping_back(ctx: Context) -> str:
    """Ping the client, in the era in which servers may send requests."""
    await ctx.session.send_ping()
    return "pong"


@server.tool()
def many(to: int) -> list[int]:
    """Return structured content that is not an object."""
    return list(range(to))


@server.tool()
def weigh(grams: int) -> Weight:
    """Return a value with an output schema."""
    return Weight(grams=grams, heavy=grams > 1000)


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Notify subscribers that a resource has changed."""
    await ctx.notify_resource_updated(uri)
    if uri in subscribed:
        await ctx.session.send_resource_updated(uri)
    return "touched"


@server.tool()
async def grow(ctx: Context) -> str:
    """Announce changes of all lists, with the notifications of each era."""
    await ctx.notify_tools_changed()
    await ctx.notify_resources_changed()
    await ctx.notify_prompts_changed()
    if ctx.protocol_version != "2026-07-28":
        await ctx.session.send_tool_list_changed()
        await ctx.session.send_resource_list_changed()
        await ctx.session.send_prompt_list_changed()
    return "grown"


@server.resource("memo://notes/{number}", name="note", mime_type="text/plain")
def note(number: int) -> str:
    return f"note {number}"


@server.resource("memo://diary/{day}", name="diary")
async def diary(day: str, ctx: Context) -> str | InputRequiredResult:
    told = await asked_by_hand(ctx)
    return f"{day}: {told}" if isinstance(told, str) else told


@server.prompt()
async def dedicate(ctx: Context) -> str | InputRequiredResult:
    told = await asked_by_hand(ctx)
    return f"Dedicate it: {told}" if isinstance(told, str) else told


@server.prompt()
def recommend(reader: str, mood: str = "merry") -> str:
    return f"Recommend a {mood} book for {reader}."


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion:
    others = (context.arguments if context else None) or {}
    values = ["1", "12", "2"]
    if isinstance(ref, PromptReference):
        values = ["Ada", "Alan"] if others.get("mood") != "sad" else ["Alas"]
    return Completion(values=[value for value in values if value.startswith(argument.value)])


async def subscribe(ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
    subscribed.add(params.uri)
    return EmptyResult()


async def unsubscribe(ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
    subscribed.discard(params.uri)
    return EmptyResult()


# `MCPServer` has no API for handshake-era subscriptions, but its low-level server has.
beneath = server._lowlevel_server
beneath.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
beneath.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)

if __name__ == "__main__":
    server.run()
