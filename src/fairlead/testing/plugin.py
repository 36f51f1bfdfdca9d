"""pytest plugin: `fairlead_tape("name", target)` returns a server that is recorded once.

    async def test_the_weather(fairlead_tape):
        server = fairlead_tape("weather", {"command": "uvx", "args": ["mcp-server-weather"]})
        async with MCPClient.connect_inprocess(server) as client:
            ...

pytest loads the plugin in every run, so it imports most modules only when a test requests a tape.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from .taped_server import TapedServer

__all__ = ["TapeFactory", "fairlead_tape", "pytest_addoption"]

_PASSED = pytest.StashKey[bool]()
_GIVEN = pytest.StashKey["dict[str, TapedServer]"]()  # the servers used by a test, by name


class TapeFactory(Protocol):
    """Type of the `fairlead_tape` fixture."""

    def __call__(self, name: str, target: Any = None, **options: Any) -> "TapedServer":
        """Return a server to attach to: the real server in the first run, its tape afterwards.

        `options` are passed to `TapeServer` when the tape is played. The same name returns the same
        server.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("fairlead").addoption(
        "--fairlead-tapes",
        choices=("once", "again", "never"),
        default="once",
        help="record missing tapes (once, the default), all tapes again (again), or none (never: "
        "a missing tape fails its test)",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.when != "call":
        return
    # The fixture's teardown needs the outcome, and pytest passes it only to this hook.
    item.stash[_PASSED] = report.passed
    for name, tape in item.stash.get(_GIVEN, {}).items() if report.failed else ():
        said = [f"{what} is not on the tape" for what in tape.missed]
        if said:
            said.append("use --fairlead-tapes=again to record it again")
            report.sections.append((f"the tape {name}", "\n".join(said)))


@pytest.fixture
def fairlead_tape(request: pytest.FixtureRequest) -> Iterator[TapeFactory]:
    """Return a function that returns servers with tapes in the folder `tapes/` next to the test.

    A failed test's new tapes are discarded.
    """
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
