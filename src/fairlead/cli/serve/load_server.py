"""Finding a server: import the file or module that has it, without a word on stdout."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...server import MCPServer
from ..framework.command_errors import CommandError, UsageError
from ..framework.suggested_commands import suggest

if TYPE_CHECKING:
    from traceback import TracebackException

__all__ = ["Serve", "load"]

Serve = Callable[[MCPServer], None]

_USUAL_NAMES = ("server", "mcp", "app")


def load(target: str, serve: Serve = MCPServer.run) -> MCPServer | None:
    """The server that a target names; None if importing it ran a server until its end.

    `serve` is how it is run then.

    Raises:
        CommandError: if there is no such file, module or object, or if its code fails.
    """
    place, name = _split(target)
    is_file = _is_file(place)
    if is_file and not os.path.isfile(place):
        raise UsageError(f"There is no file {place}")
    with _stdout_to_stderr() as stdout, _run_allowed(stdout, serve) as ran:
        module = _guarded_import(place, is_file=is_file)
    return None if ran else _find(module, place, name)


def _split(target: str) -> tuple[str, str]:
    """`weather.py:server` is a place and a name; a file that is called like that comes first."""
    place, colon, name = target.rpartition(":")
    if not colon or os.path.exists(target):
        return target, ""
    if not place or not _is_dotted_name(name):
        raise UsageError(
            f"{target!r} names no server", hint="write FILE_OR_MODULE or FILE_OR_MODULE:OBJ"
        )
    return place, name


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or os.path.isfile(place)


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


# Importing


@contextmanager
def _stdout_to_stderr() -> Iterator[int]:
    """While a module is imported, fd 1 is stderr: stdout belongs to the protocol.

    Yields a descriptor of the real one.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield stdout
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


@contextmanager
def _run_allowed(stdout: int, serve: Serve) -> Iterator[list[MCPServer]]:
    """A file may end in a bare `server.run()`: then it serves there and then, as a script would.

    Yields the servers that have been run so.
    """
    ran: list[MCPServer] = []
    run = MCPServer.run

    def run_now(self: MCPServer) -> None:
        ran.append(self)
        sys.stdout.flush()
        os.dup2(stdout, 1)
        try:
            serve(self)
        finally:
            os.dup2(2, 1)

    MCPServer.run = run_now  # type: ignore[method-assign]
    try:
        yield ran
    finally:
        MCPServer.run = run  # type: ignore[method-assign]


def _guarded_import(place: str, *, is_file: bool) -> ModuleType:
    try:
        return _import_file(Path(place)) if is_file else _import_module(place)
    except CommandError:
        raise
    except SystemExit as exc:
        code = "" if exc.code is None else f" ({exc.code})"
        raise CommandError(f"{place} ended the program while it was imported{code}") from exc
    except Exception as exc:
        raise CommandError(f"{place} could not be imported", details=_traceback(exc)) from exc


def _import_file(path: Path) -> ModuleType:
    """Import a file the way `python FILE` runs it, but not as `__main__`."""
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]
    name = path.stem if path.stem not in sys.modules else f"{path.stem} (served)"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file: its name does not end in .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    if not _is_dotted_name(name):
        raise UsageError(f"{name!r} is neither a Python file nor the name of a module")
    sys.path.insert(0, os.getcwd())
    sys.argv = [name]
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise  # the module is there, and misses another one
        raise UsageError(
            f"There is no module {exc.name!r}",
            hint=f"a file is named with its ending: {suggest('serve', operands=[f'{name}.py'])}",
        ) from exc


def _traceback(error: Exception) -> list[str]:
    """The traceback as the author of the file wants it: without our frames and the importer's."""
    from traceback import TracebackException

    shown = TracebackException.from_exception(error)
    _without_our_frames(shown)
    return "".join(shown.format()).rstrip().splitlines()


def _without_our_frames(shown: "TracebackException") -> None:
    """Leave out how we got there, and what happened inside of us after we were called."""
    cli = str(Path(__file__).parents[1]) + os.sep
    fairlead = str(Path(__file__).parents[2]) + os.sep
    frames = [f for f in shown.stack if not f.filename.startswith((cli, "<frozen importlib"))]
    shown.stack[:] = takewhile(lambda f: not f.filename.startswith(fairlead), frames)
    for chained in ("__cause__", "__context__"):
        earlier: TracebackException | None = getattr(shown, chained)
        if earlier is None:
            continue
        _without_our_frames(earlier)
        if not earlier.stack:  # it happened inside of us; the later one says what it means
            setattr(shown, chained, None)


# Finding


def _find(module: ModuleType, place: str, name: str) -> MCPServer:
    if name:
        return _named(module, place, name)
    for usual in _USUAL_NAMES:
        found = getattr(module, usual, None)
        if isinstance(found, MCPServer):
            return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, MCPServer)}
    if not servers:
        raise CommandError(
            f"{place} has no MCPServer in it",
            hint="make one at the top level: `server = MCPServer('name')`",
        )
    if len({id(server) for server in servers.values()}) > 1:
        raise UsageError(
            f"{place} has several servers: {', '.join(servers)}",
            hint=f"name one: {suggest('serve', operands=[f'{place}:{next(iter(servers))}'])}",
        )
    return next(iter(servers.values()))


def _named(module: ModuleType, place: str, name: str) -> MCPServer:
    found: object = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"{place} has no {name!r}", hint=_near(module, name)) from None
    if not isinstance(found, MCPServer):
        kind = type(found).__name__
        raise UsageError(f"{place}:{name} is no MCPServer but of type {kind}")
    return found


def _near(module: ModuleType, name: str) -> str:
    servers = [key for key, value in vars(module).items() if isinstance(value, MCPServer)]
    return f"there is {', '.join(servers)}" if servers else ""
