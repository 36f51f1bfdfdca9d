"""A thousand ordinary tools of three or four described parameters, the same for every server."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal

__all__ = ["thousand"]

Tool = Callable[..., Awaitable[str]]
Note = Callable[[str], Any]

SYSTEMS = (
    "billing",
    "calendar",
    "catalog",
    "crm",
    "helpdesk",
    "inventory",
    "payroll",
    "shipping",
    "tickets",
    "warehouse",
)
THINGS = (
    "accounts",
    "contracts",
    "customers",
    "documents",
    "events",
    "invoices",
    "notes",
    "orders",
    "projects",
    "teams",
)


def thousand(note: Note) -> Iterator[Tool]:
    """Return all tools; `note` builds the annotation of a parameter for a runtime."""
    for system in SYSTEMS:
        for thing in THINGS:
            for make in (_searching, _changing):
                yield from make(system, thing, note)


def _searching(system: str, thing: str, note: Note) -> Iterator[Tool]:
    async def search(
        query: Annotated[str, note(f"Words to look for in the {thing}")],
        limit: Annotated[int, note("How many to return at most")] = 20,
        exact: Annotated[bool, note("Whether all words have to occur")] = False,
        labels: Annotated[list[str] | None, note("Only those with one of these labels")] = None,
    ) -> str:
        return f"{query} {limit} {exact} {labels}"

    async def get(
        id: Annotated[str, note(f"Which of the {thing}, as search returned it")],
        fields: Annotated[list[str] | None, note("The fields to return; all by default")] = None,
        revision: Annotated[int, note("An earlier revision; 0 is the current one")] = 0,
    ) -> str:
        return f"{id} {fields} {revision}"

    async def count(
        since: Annotated[str, note("The first day, as YYYY-MM-DD")],
        until: Annotated[str, note("The last day, as YYYY-MM-DD")],
        by: Annotated[Literal["day", "week", "month"], note("What to count by")] = "day",
    ) -> str:
        return f"{since} {until} {by}"

    async def export(
        ids: Annotated[list[str], note(f"Which of the {thing} to export")],
        format: Annotated[Literal["csv", "json", "pdf"], note("The format of the file")] = "csv",
        compress: Annotated[bool, note("Whether to compress the file")] = True,
    ) -> str:
        return f"{ids} {format} {compress}"

    async def compare(
        first: Annotated[str, note("The one to start from")],
        second: Annotated[str, note("The one to compare it with")],
        tolerance: Annotated[float, note("Numbers closer than this are the same")] = 0.01,
    ) -> str:
        return f"{first} {second} {tolerance}"

    for tool in (search, get, count, export, compare):
        yield _named(tool, system, thing)


def _changing(system: str, thing: str, note: Note) -> Iterator[Tool]:
    async def create(
        title: Annotated[str, note("A short title, in the language of the reader")],
        text: Annotated[str, note("All there is to say, in Markdown")],
        priority: Annotated[int, note("From 1, the most urgent, to 5")] = 3,
        labels: Annotated[list[str] | None, note("Labels to find it by")] = None,
    ) -> str:
        return f"{title} {text} {priority} {labels}"

    async def update(
        id: Annotated[str, note(f"Which of the {thing}, as search returned it")],
        values: Annotated[dict[str, str], note("New values, by the name of the field")],
        notify: Annotated[bool, note("Whether to tell those who follow it")] = True,
    ) -> str:
        return f"{id} {values} {notify}"

    async def delete(
        id: Annotated[str, note(f"Which of the {thing}, as search returned it")],
        reason: Annotated[str, note("Why, for the log")],
        forever: Annotated[bool, note("Whether it skips the bin")] = False,
    ) -> str:
        return f"{id} {reason} {forever}"

    async def assign(
        id: Annotated[str, note(f"Which of the {thing}, as search returned it")],
        person: Annotated[str, note("The address of who is to do it")],
        hours: Annotated[float, note("How long it may take")] = 1.0,
        role: Annotated[Literal["owner", "helper", "reader"], note("As what")] = "owner",
    ) -> str:
        return f"{id} {person} {hours} {role}"

    async def merge(
        source: Annotated[str, note("The one that goes")],
        target: Annotated[str, note("The one that stays")],
        keep: Annotated[list[str] | None, note("Fields to take from the one that goes")] = None,
    ) -> str:
        return f"{source} {target} {keep}"

    for tool in (create, update, delete, assign, merge):
        yield _named(tool, system, thing)


def _named(tool: Tool, system: str, thing: str) -> Tool:
    verb = tool.__name__
    tool.__name__ = tool.__qualname__ = f"{system}_{verb}_{thing}"
    tool.__doc__ = f"{verb.capitalize()} {thing} in the {system} system, as its users see them."
    return tool
