"""Tools in modules: functions marked as tools and registered when a server loads the module."""

import contextlib
import functools
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar, overload

from msgspec import Struct

from ...errors import MCPErrorCode, MCPToolError
from ...keyword_arguments import named_arguments
from .tool_entry import ToolEntry, describe_function, tool_from_function, tool_from_schema
from .tool_registry import MCPToolRegistry

__all__ = ["ToolMark", "load_modules", "mcp_tool"]

ENTRY_POINTS = "fairlead.tools"
_MARK = "__mcp_tool__"

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("fairlead.server")


class ToolMark(Struct, frozen=True, kw_only=True):
    """The arguments of `mcp_tool` for one function."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    category: str = "general"
    tags: tuple[str, ...] = ()
    version: str | None = None
    deprecated_in: str | None = None
    requires: tuple[str, ...] = ()


@overload
def mcp_tool(name: F) -> F: ...
@overload
def mcp_tool(
    name: str | None = None,
    description: str | None = None,
    schema: dict[str, Any] | None = None,
    category: str = "general",
    tags: Sequence[str] | None = None,
    version: str | None = None,
    deprecated_in: str | None = None,
    requires: Sequence[str] | None = None,
) -> Callable[[F], F]: ...


@named_arguments
def mcp_tool(
    name: str | Callable[..., Any] | None = None,
    description: str | None = None,
    schema: dict[str, Any] | None = None,
    category: str = "general",
    tags: Sequence[str] | None = None,
    version: str | None = None,
    deprecated_in: str | None = None,
    requires: Sequence[str] | None = None,
) -> Any:
    """Mark a function as a tool, for servers that load its module.

    `requires` names modules that the function needs. If one is missing, calls fail with an error
    that names it.
    """

    def mark(function: F) -> F:
        note = ToolMark(
            name=None if callable(name) else name,
            description=description,
            schema=schema,
            category=category,
            tags=tuple(tags or ()),
            version=version,
            deprecated_in=deprecated_in,
            requires=tuple(requires or ()),
        )
        setattr(function, _MARK, note)
        return function

    # Used without parentheses (`@mcp_tool`), `name` is the decorated function.
    return mark(name) if callable(name) else mark


def load_modules(
    registry: MCPToolRegistry, names: Iterable[str], *, entry_points: bool = False
) -> None:
    """Import modules and register their marked functions; failures are logged and skipped."""
    for name in (*names, *(_entry_points() if entry_points else ())):
        try:
            # With stdio, a module that prints during its import would corrupt the protocol stream.
            with stdout_to_stderr():
                module = importlib.import_module(name)
        # Imported modules are user code and may raise anything.
        except (Exception, SystemExit) as exc:
            log.error(
                "the tool module %s cannot be imported; its tools are missing", name, exc_info=exc
            )
            continue
        _register(registry, module)


def _register(registry: MCPToolRegistry, module: ModuleType) -> None:
    for function in list(vars(module).values()):
        mark = getattr(function, _MARK, None)
        if not isinstance(mark, ToolMark) or not callable(function):
            continue
        try:
            registry.register(_entry(function, mark), source=function)
        except (TypeError, ValueError) as exc:
            what = f"{module.__name__}.{getattr(function, '__name__', function)}"
            log.error("the tool %s is skipped: %s", what, exc)


def _entry(function: Callable[..., Any], mark: ToolMark) -> ToolEntry:
    description = mark.description if mark.description is not None else describe_function(function)
    if mark.deprecated_in is not None:
        description = f"Deprecated since {mark.deprecated_in}. {description}".strip()
    meta: dict[str, Any] = {"fairlead/category": mark.category}
    if mark.tags:
        meta["fairlead/tags"] = list(mark.tags)
    if mark.version is not None:
        meta["fairlead/version"] = mark.version
    if mark.deprecated_in is not None:
        meta["fairlead/deprecatedIn"] = mark.deprecated_in
    name, called = mark.name or function.__name__, _needing(function, mark.requires)
    if mark.schema is not None:
        whole = mark.schema if "inputSchema" in mark.schema else {"inputSchema": mark.schema}
        facts = {"description": description} if description else {}
        return tool_from_schema(name, {**facts, "_meta": meta, **whole}, called, None)
    return tool_from_function(called, name=name, description=description, meta=meta)


def _needing(function: Callable[..., Any], modules: tuple[str, ...]) -> Callable[..., Any]:
    """Return the function with a check for its required modules.

    The error then names the missing module, instead of an ImportError raised inside the function.
    """
    if not modules:
        return function

    def check() -> None:
        missing = [name for name in modules if not _is_there(name)]
        if missing:
            raise MCPToolError(
                f"{function.__name__} needs {', '.join(missing)}, which is not installed",
                code=MCPErrorCode.DEPENDENCY_MISSING,
                module=missing[0],
                suggestion=f"pip install {' '.join(missing)}",
            )

    # A coroutine function needs an asynchronous wrapper: the runner checks the function type.
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            check()
            return await function(*args, **kwargs)

        return later

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        check()
        return function(*args, **kwargs)

    return now


def _is_there(name: str) -> bool:
    try:
        from importlib.util import find_spec

        return name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _entry_points() -> list[str]:
    # Loaded on first use, because reading the metadata of every installed package is slow.
    from importlib.metadata import entry_points

    return [point.module for point in entry_points(group=ENTRY_POINTS)]


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr, including the output of C code and child processes."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # stdout is closed, so no protocol stream needs protection.
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
