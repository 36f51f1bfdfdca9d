"""Ten ordinary tools, registered unchanged by every ten-tool server."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

__all__ = ["TEN"]


async def echo(text: str) -> str:
    """Say it again."""
    return text


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def mean(values: list[float]) -> float:
    """The arithmetic mean of some numbers."""
    return sum(values) / len(values)


async def search(query: str, limit: int = 10, exact: bool = False) -> list[str]:
    """Find the notes that mention something."""
    return [f"{query} {n}" for n in range(1 if exact else limit)]


async def weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """The weather in a city."""
    return f"20 degrees {unit} in {city}"


async def tag(note: str, tags: list[str]) -> dict[str, int]:
    """Put tags on a note; answers how often each was given."""
    return {name: tags.count(name) for name in [*tags, note]}


async def schedule(title: str, minutes: int, room: str | None = None) -> str:
    """Plan a meeting."""
    return f"{title}: {minutes} minutes in {room or 'any room'}"


async def convert(amount: float, source: str, target: str) -> float:
    """Convert an amount of money."""
    return amount if source == target else amount * 1.1


async def translate(text: str, language: str, formal: bool = True) -> str:
    """Translate a text."""
    return f"{language}{'!' if formal else '?'} {text}"


async def count(words: dict[str, int], least: int = 1) -> int:
    """Count the words seen often enough."""
    return sum(1 for seen in words.values() if seen >= least)


TEN: tuple[Callable[..., Awaitable[Any]], ...] = (
    echo,
    add,
    mean,
    search,
    weather,
    tag,
    schedule,
    convert,
    translate,
    count,
)
