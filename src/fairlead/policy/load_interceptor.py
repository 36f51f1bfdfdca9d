"""Loading user-defined interceptors by their Python path."""

import inspect
import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, cast

from ..errors import ConfigError
from ..interceptor import Interceptor

__all__ = ["load_interceptor"]


def load_interceptor(
    code: str, options: dict[str, Any] | None = None, *, folder: str = ""
) -> Interceptor:
    """Load the interceptor that `code` names as `module:attribute` or `path.py:attribute`.

    A class, or a function that is not `async`, is called with the options and must return an
    interceptor. Paths are relative to `folder`.

    Raises:
        ConfigError: The name is invalid or unknown, the object is not an interceptor, or its code
            fails.
    """
    place, colon, name = code.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"invalid interceptor {code!r}: expected module:attribute or path.py:attribute"
        )
    try:
        module = _import_file(place, folder) if place.endswith(".py") else import_module(place)
    except ConfigError:
        raise
    # User code may raise any exception or call `sys.exit()`; both are reported as errors.
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"{place} cannot be imported: {type(exc).__name__}: {exc}") from exc
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ConfigError(f"{place} has no attribute {name}")
    return _made(found, code, options)


def _made(found: Any, target: str, options: dict[str, Any] | None) -> Interceptor:
    factory = inspect.isclass(found) or (
        inspect.isfunction(found) and not inspect.iscoroutinefunction(found)
    )
    if factory:
        try:
            found = found(**(options or {}))
        except Exception as exc:
            raise ConfigError(f"{target} cannot be created: {type(exc).__name__}: {exc}") from exc
    elif options:
        raise ConfigError(f"{target} takes no options: it is not a class or a factory function")
    call = found if inspect.isfunction(found) or not callable(found) else type(found).__call__
    if not inspect.iscoroutinefunction(call):
        raise ConfigError(f"{target} is not an interceptor: expected `async (exchange, proceed)`")
    try:
        inspect.signature(found).bind(None, None)
    except TypeError:
        raise ConfigError(
            f"{target} is not an interceptor: it must accept `exchange` and `proceed`"
        ) from None
    return cast(Interceptor, found)


def _import_file(place: str, folder: str) -> ModuleType:
    path = os.path.abspath(os.path.join(folder, place))
    if not os.path.isfile(path):
        raise ConfigError(f"file {path} does not exist")
    name = f"fairlead_interceptors_{abs(hash(path)):x}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module  # `dataclasses` and `pickle` look up the module by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
