"""Package attributes, and functions of higher layers, that are imported on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["call_late", "late_functions", "lazy_names", "public_names"]

# Functions of higher layers that lower layers call, by name. The top-level package sets them.
late_functions: dict[str, Callable[..., Any]] = {}


def lazy_names(
    package: str, homes: Mapping[str, str], replaced: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` for `package` that imports names on first use.

    `homes` maps each name to the full name of the module that defines it. `replaced` maps names of
    other libraries to what to use instead of them.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            if replaced is not None and name in replaced:
                # `from package import name` drops the message of an AttributeError.
                raise ImportError(
                    f"cannot import name {name!r} from {package!r}: {replaced[name]}", name=package
                )
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        # Stored in the package, so that `__getattr__` runs only once for each name.
        setattr(sys.modules[package], name, value)
        return value

    return load


def public_names(package: str) -> Callable[[], list[str]]:
    """Return a module-level `__dir__` for `package`, which lists its `__all__`."""

    def names() -> list[str]:
        module = vars(sys.modules[package])
        return sorted({*module["__all__"], *(name for name in module if name.startswith("__"))})

    return names


def call_late(name: str, /, *arguments: Any, **options: Any) -> Any:
    """Call a function of a higher layer that the top-level package has set."""
    return late_functions[name](*arguments, **options)
