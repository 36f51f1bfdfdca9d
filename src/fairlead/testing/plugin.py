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
    from .taped_server import TapedServer

__all__ = ["TapeFactory", "fairlead_tape", "pytest_addoption"]

_PASSED = pytest.StashKey[bool]()
_GIVEN = pytest.StashKey["dict[str, TapedServer]"]()  # to a test, by their names


class TapeFactory(Protocol):
    """What the fixture is."""

    def __call__(self, name: str, target: Any = None, **options: Any) -> "TapedServer":
        """A server, to be attached to: the real one the first time, its tape from then on.

        Options are those of `TapeServer`, for the times it is played. The same name again is the
        same server.
        """
        ...


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
    if report.when != "call":
        return
    item.stash[_PASSED] = report.passed
    for name, tape in item.stash.get(_GIVEN, {}).items() if report.failed else ():
        said = [f"{what} is not on it" for what in tape.missed]
        if said:
            said.append("--fairlead-tapes=again records it anew")
            report.sections.append((f"the tape {name}", "\n".join(said)))


@pytest.fixture
def fairlead_tape(request: pytest.FixtureRequest) -> Iterator[TapeFactory]:
    """Tapes beside the test, in `tapes/`; one of a test that fails is not kept."""
    from .taped_server import TapedServer

    mode = str(request.config.getoption("--fairlead-tapes"))
    folder = Path(request.path).parent / "tapes"
    given = request.node.stash[_GIVEN] = dict[str, TapedServer]()

    def tape(name: str, target: Any = None, **options: Any) -> TapedServer:
        if name not in given:
            given[name] = TapedServer(folder / name, target, mode, options)
        return given[name]

    yield tape
    for each in given.values():
        each.finish(keep=request.node.stash.get(_PASSED, False))
