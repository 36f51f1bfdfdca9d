"""`official_full.py` over every HTTP transport that the SDK has."""

from collections.abc import Awaitable, Callable

from listening import serve
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventMessage, EventStore
from official_full import server


class Events(EventStore):
    """A store of the sent events, for clients that resume a stream."""

    def __init__(self) -> None:
        self.replays = 0
        self._events: list[tuple[str, object]] = []

    async def store_event(self, stream_id: str, message: object) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[EventMessage], Awaitable[None]]
    ) -> str | None:
        self.replays += 1
        known = int(last_event_id)
        stream_id, _ = self._events[known - 1]
        for number, (stream, message) in enumerate(self._events[known:], known + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


events = Events()


@server.tool()
async def replays() -> int:
    """Return the number of requests with a `Last-Event-ID`."""
    return events.replays


@server.tool()
async def hang_up(ctx: Context) -> str:
    """Close the connection during the call, and continue."""
    await ctx.report_progress(1, 3, "before")
    await ctx.close_sse_stream()
    await ctx.report_progress(2, 3, "meanwhile")
    await ctx.report_progress(3, 3, "after")
    return "still here"


if __name__ == "__main__":
    app = server.streamable_http_app
    serve(
        {
            "events": app(streamable_http_path="/events"),
            "json": app(streamable_http_path="/json", json_response=True),
            "stateless": app(streamable_http_path="/stateless", stateless_http=True),
            "resumable": app(
                streamable_http_path="/resumable", event_store=events, retry_interval=10
            ),
            "sse": server.sse_app(sse_path="/sse"),
        }
    )
