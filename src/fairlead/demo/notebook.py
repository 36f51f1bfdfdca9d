"""The demo server: an in-memory notebook and a few tools.

Meant to be read and copied, so it imports Fairlead as your own server would.
"""

import asyncio
import base64
import random
import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from fairlead import Context, MCPServer, MCPToolError

__all__ = ["server"]

server = MCPServer(
    "fairlead-demo",
    version="1.0.0",
    title="Fairlead demo",
    instructions="A notebook and some small tools. Notes are lost when the server stops.",
    rate_limit_rate=0,  # no limit, because the demo is used to measure how fast calls are
)


class Note(Struct):
    """A note. Structs, dataclasses and plain containers are converted to JSON."""

    title: str
    text: str


notes = [
    Note("Welcome", "This notebook lives in memory. Add a note and search for it."),
    Note("Fairlead", "A ring that guides a rope, so that it runs freely and does not chafe."),
    Note("Shopping", "Rope, lamp oil, coffee, and a chart of the harbour."),
]

# Tools: the type hints become the schema, and the docstring is the description for the model.
# `Annotated` adds constraints and descriptions. Arguments are validated before the function is
# called.


@server.tool(title="Search notes")
def search_notes(
    query: Annotated[str, Meta(description="Text to search for, ignoring case")],
    limit: Annotated[int, Meta(ge=1, le=50, description="Maximum number of notes")] = 5,
) -> list[Note]:
    """Find the notes that contain a phrase in their title or text."""
    wanted = query.casefold()
    return [n for n in notes if wanted in f"{n.title}\n{n.text}".casefold()][:limit]


@server.tool(title="Add a note")
def add_note(title: Annotated[str, Meta(min_length=1)], text: str) -> str:
    """Add a note to the notebook."""
    if any(note.title == title for note in notes):
        # The model reads this error in the result and can correct its call.
        raise MCPToolError(
            f"A note with the title {title!r} exists already", suggestion="Choose another title"
        )
    notes.append(Note(title, text))
    return f"Saved. The notebook has {len(notes)} notes."


# The dimension of each unit, and its size in metres, kilograms or seconds.
UNITS: dict[str, tuple[str, float]] = {
    "m": ("length", 1.0),
    "km": ("length", 1000.0),
    "ft": ("length", 0.3048),
    "mi": ("length", 1609.344),
    "nmi": ("length", 1852.0),
    "kg": ("mass", 1.0),
    "lb": ("mass", 0.45359237),
    "oz": ("mass", 0.028349523125),
    "s": ("time", 1.0),
    "min": ("time", 60.0),
    "h": ("time", 3600.0),
    "d": ("time", 86400.0),
}


@server.tool(title="Convert units", inline=True)  # quick and never blocks, so it needs no thread
def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a length, a mass or a time, for example from "nmi" to "km"."""
    source, target = _unit(from_unit), _unit(to_unit)
    if source[0] != target[0]:
        raise MCPToolError(f"{from_unit} is a {source[0]}, {to_unit} is a {target[0]}")
    return f"{value:g} {from_unit} = {value * source[1] / target[1]:.6g} {to_unit}"


def _unit(name: str) -> tuple[str, float]:
    if name not in UNITS:
        raise MCPToolError(f"Unknown unit {name!r}", suggestion=f"Use one of {', '.join(UNITS)}")
    return UNITS[name]


@server.tool(title="Summarize a text")
def summarize_text(text: str) -> dict[str, Any]:
    """Count words and sentences, and estimate the reading time of a text."""
    words = re.findall(r"\w+(?:['’]\w+)*", text)
    longest = max(words, key=len, default="")
    return {
        "characters": len(text),
        "words": len(words),
        "sentences": len(re.findall(r"[.!?…]+(?=\s|$)", text)) or int(bool(words)),
        "longest_word": longest,
        "reading_seconds": round(len(words) / 200 * 60),
    }


@server.tool(title="Count slowly")
async def count_slowly(
    ctx: Context,
    to: Annotated[int, Meta(ge=1, le=100)] = 5,
    pause: Annotated[float, Meta(ge=0, le=10, description="Seconds between two numbers")] = 0.2,
) -> str:
    """Count to a number and report progress."""
    await ctx.info(f"counting to {to}")
    for number in range(1, to + 1):
        await asyncio.sleep(pause)  # A cancelled call stops here.
        await ctx.progress(number, to, f"at {number}")
    await ctx.info("done")
    return f"Counted to {to}."


@server.tool(title="Roll dice")
def roll_dice(
    sides: Annotated[int, Meta(ge=2, le=1000)] = 6,
    times: Annotated[int, Meta(ge=1, le=100)] = 1,
    seed: Annotated[int | None, Meta(description="The same seed rolls the same dice")] = None,
) -> dict[str, Any]:
    """Roll one or more dice."""
    dice = random.Random(seed)
    rolls = [dice.randint(1, sides) for _ in range(times)]
    return {"rolls": rolls, "total": sum(rolls)}


# Resources: contents that a host may read, as text, bytes or any value with a JSON form.


@server.resource("notes://all", title="All notes", mime_type="application/json")
def all_notes() -> dict[str, Any]:
    """All notes in the notebook."""
    return {"notes": notes}


@server.resource("demo://about", title="About this server", mime_type="text/markdown")
def about() -> str:
    """A description of this server."""
    return (
        "# Fairlead demo\n\n"
        "A notebook and some small tools that show how a server is written.\n"
        "The server supports every revision of the protocol.\n"
    )


@server.resource("demo://sunrise.png", title="A sunrise", mime_type="image/png")
def sunrise() -> bytes:
    """A sun over the sea, in eight by eight pixels."""
    return base64.b64decode(SUNRISE)


SUNRISE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAPUlEQVR42mP41ZOHFTF87yvAihi+TCjCihg+TirBihje"
    "TSmDoP+XAiAIwmUQcavAihhEPCqwIgYRrwqsCAA32mLMmYif/QAAAABJRU5ErkJggg=="
)


# Prompts: messages that a user selects, with arguments to fill in.


@server.prompt(title="Review my notes")
def review_notes(topic: str = "anything") -> str:
    """Ask for a critical review of the notes on a topic."""
    shown = "\n".join(f"- {note.title}: {note.text}" for note in notes)
    return f"Here are my notes. What is missing about {topic}?\n\n{shown}"


@server.prompt(title="Write a note")
def write_note(topic: str, tone: str = "plain") -> list[str]:
    """Ask for a new note that is saved in the notebook."""
    return [
        f"Write a short note about {topic}, in a {tone} tone.",
        "Then save it with the tool add_note.",
    ]
