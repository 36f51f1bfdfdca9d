"""Import of the file or module that contains a server; its output is kept off stdout."""

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
from ..framework.command_errors import CommandError, UsageError, unknown_name_error
from ..framework.suggested_commands import suggest

if TYPE_CHECKING:
    from traceback import TracebackException

__all__ = ["Serve", "load"]

Serve = Callable[[MCPServer], None]

_USUAL_NAMES = ("server", "mcp", "app")


def load(target: str, serve: Serve = MCPServer.run) -> MCPServer | None:
    """Import a target and return its server; None if the import itself ran a server.

    `serve` runs a server that the imported file starts itself.

    Raises:
        CommandError: The file, module or object does not exist, or its code fails.
    """
    place, name = _split(target)
    is_file = _is_file(place)
    if is_file and not os.path.isfile(place):
        raise UsageError(f"File not found: {place}")
    with _stdout_to_stderr() as stdout, _run_allowed(stdout, serve) as ran:
        module = _guarded_import(place, is_file=is_file)
    return None if ran else _find(module, place, name)


def _split(target: str) -> tuple[str, str]:
    """Split `weather.py:server` into file and object, unless a file with the whole name exists."""
    place, colon, name = target.rpartition(":")
    if not colon or os.path.exists(target):
        return target, ""
    if not place or not _is_dotted_name(name):
        raise UsageError(
            f"Invalid server {target!r}", hint="expected FILE_OR_MODULE or FILE_OR_MODULE:OBJ"
        )
    return place, name


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or os.path.isfile(place)


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


# Importing


@contextmanager
def _stdout_to_stderr() -> Iterator[int]:
    """Redirect file descriptor 1 to stderr during the import, because stdout is used for messages.

    Yields a descriptor of the real stdout.
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
    """Allow a file to run its server with `server.run()` at the top level, like a script.

    Yields the list of servers that were run.
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
        raise CommandError(f"{place} called sys.exit() during import{code}") from exc
    except Exception as exc:
        raise CommandError(f"Cannot import {place}", details=_traceback(exc)) from exc


def _import_file(path: Path) -> ModuleType:
    """Import a file in the same way as `python FILE`, but not as `__main__`."""
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]
    # A file must not replace an imported module of the same name, such as `json.py`.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} (served)"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file: its name must end in .py")
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
            raise  # the module exists, but one of its own imports is missing
        raise UsageError(
            f"Module not found: {exc.name!r}",
            hint=f"a file needs its extension: {suggest('serve', operands=[f'{name}.py'])}",
        ) from exc


def _traceback(error: Exception) -> list[str]:
    """Return the traceback without the frames of Fairlead and the import system."""
    from traceback import TracebackException

    shown = TracebackException.from_exception(error)
    _without_our_frames(shown)
    return "".join(shown.format()).rstrip().splitlines()


def _without_our_frames(shown: "TracebackException") -> None:
    """Remove the frames before the imported code, and the frames inside Fairlead after it."""
    cli = str(Path(__file__).parents[1]) + os.sep
    fairlead = str(Path(__file__).parents[2]) + os.sep
    frames = [f for f in shown.stack if not f.filename.startswith((cli, "<frozen importlib"))]
    shown.stack[:] = takewhile(lambda f: not f.filename.startswith(fairlead), frames)
    for chained in ("__cause__", "__context__"):
        earlier: TracebackException | None = getattr(shown, chained)
        if earlier is None:
            continue
        _without_our_frames(earlier)
        # A chained exception without user-code frames is internal to Fairlead and not useful.
        if not earlier.stack:
            setattr(shown, chained, None)


# Finding the server


def _find(module: ModuleType, place: str, name: str) -> MCPServer:
    if name:
        return _named(module, place, name)
    for usual in _USUAL_NAMES:
        found = getattr(module, usual, None)
        if isinstance(found, MCPServer):
            return found
    servers = _servers_in(module)
    if not servers:
        raise CommandError(
            f"No MCPServer in {place}",
            hint="create one at the top level: `server = MCPServer('name')`",
        )
    if len({id(server) for server in servers.values()}) > 1:
        raise UsageError(
            f"Several servers in {place}: {', '.join(servers)}",
            hint=f"select one: {suggest('serve', operands=[f'{place}:{next(iter(servers))}'])}",
        )
    return next(iter(servers.values()))


def _named(module: ModuleType, place: str, name: str) -> MCPServer:
    found: object = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise unknown_name_error("object", name, _servers_in(module), place=place) from None
    if not isinstance(found, MCPServer):
        kind = type(found).__name__
        raise UsageError(f"{place}:{name} is not an MCPServer, but of type {kind}")
    return found


def _servers_in(module: ModuleType) -> dict[str, MCPServer]:
    return {key: value for key, value in vars(module).items() if isinstance(value, MCPServer)}
