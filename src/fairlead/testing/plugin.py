"""The plugin for pytest: `fairlead_tape("name", target)` is a server, recorded once.

    async def test_the_weather(fairlead_tape):
        server = fairlead_tape("weather", {"command": "uvx", "args": ["mcp-server-weather"]})
        async with MCPClient.connect_inprocess(server) as client:
            ...

It loads next to nothing until a test asks for a tape: it is loaded with every run of pytest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from .taped import Taped

__all__ = ["TapeFactory", "fairlead_tape", "pytest_addoption"]

_PASSED = pytest.StashKey[bool]()


class TapeFactory(Protocol):
    """What the fixture is."""

    def __call__(self, name: str, target: Any = None, **options: Any) -> "Taped":
        """A server, to be attached to: the real one the first time, its tape from then on.

        Options are those of `TapeServer`, for the times it is played.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("fairlead").addoption(
        "--fairlead-tapes",
        choices=("once", "again", "never"),
        default="once",
        help="record tapes that are not there (once, the default), all of them anew (again), or "
        "none (never: a tape that is not there fails its test)",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[_PASSED] = report.passed


@pytest.fixture
def fairlead_tape(request: pytest.FixtureRequest) -> Iterator[TapeFactory]:
    """Tapes beside the test, in `tapes/`; one of a test that fails is not kept."""
    from .taped import Taped

    mode = request.config.getoption("--fairlead-tapes")
    folder = Path(request.path).parent / "tapes"
    given: list[Taped] = []

    def tape(name: str, target: Any = None, **options: Any) -> Taped:
        given.append(Taped(folder / name, target, mode, options))
        return given[-1]

    yield tape
    for each in given:
        each.finish(keep=request.node.stash.get(_PASSED, False))
