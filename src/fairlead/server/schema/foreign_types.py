"""Types that msgspec does not support: paths and pydantic types, without importing either."""

import datetime
import re
import sys
from collections import deque
from collections.abc import Callable
from numbers import Rational
from typing import Any

import msgspec

__all__ = [
    "RESPELLED",
    "adapter_of",
    "as_model",
    "converter",
    "from_json",
    "is_dependency",
    "is_path",
    "is_pydantic_field",
    "require_type",
    "to_plain",
]

# Types that msgspec encodes in another format than pydantic; see `pydantic_format`.
RESPELLED = (bytes, bytearray, datetime.timedelta)


def converter(kind: Any) -> Callable[[Any, bool], Any]:
    """Return the `convert` function of a type that msgspec supports."""

    def convert(value: Any, strict: bool) -> Any:
        return msgspec.convert(value, kind, strict=strict, dec_hook=from_json)

    return convert


def from_json(kind: type, value: Any) -> Any:
    """Convert a value to a type that msgspec does not support; used as `dec_hook`."""
    if is_path(kind):
        return kind(require_type(value, str))
    adapter = adapter_of(kind)
    if adapter is None:
        raise TypeError(f"{kind.__name__} has no JSON form")
    if as_model(kind) is not None:
        return adapter.model_validate(value)
    return adapter.validate_python(value)


def to_plain(value: Any) -> Any:
    """Convert a value that msgspec does not support for encoding; used as `enc_hook`."""
    if as_model(type(value)) is not None:
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    if is_path(type(value)) or type(value).__module__ == "ipaddress":
        return str(value)
    # msgspec rejects subclasses of the basic types, such as a number of numpy.
    if isinstance(value, bool):  # a key of a dict
        return "true" if value else "false"
    for basic in (str, int, float):
        if isinstance(value, basic):
            return basic(value)
    if isinstance(value, complex | Rational):
        return str(value).strip("()")
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, deque):
        return list(value)
    adapter = adapter_of(type(value))
    if adapter is not None:
        return msgspec.Raw(adapter.dump_json(value))
    # An attribute of images and other media, which are content and not data.
    hint = getattr(value, "hint_for_data", "")
    problem = f"a value of type {type(value).__qualname__} has no JSON form"
    raise TypeError(f"{problem}: {hint}" if hint else problem)


def as_model(kind: Any) -> Any:
    """Return the type itself if it is a pydantic model, otherwise None."""
    # A program that defines a model has imported pydantic already.
    pydantic = sys.modules.get("pydantic")
    model = getattr(pydantic, "BaseModel", None)
    return kind if model and isinstance(kind, type) and issubclass(kind, model) else None


def is_pydantic_field(value: Any) -> bool:
    """Return True for a `Field(...)` of pydantic."""
    # Compared by name, so that pydantic is not imported.
    return type(value).__name__ == "FieldInfo" and type(value).__module__ == "pydantic.fields"


def is_dependency(value: Any) -> bool:
    """Return True for an object that other libraries replace by the result of a function.

    For example, `Depends(...)` of FastMCP and FastAPI, and `Resolve(...)` of the official SDK.
    """
    names = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(value).__mro__}
    return not names.isdisjoint(_DEPENDENCIES)


# Compared by name, so that these libraries are not imported. FastMCP uses `uncalled_for`.
_DEPENDENCIES = {("uncalled_for", "Dependency"), ("fastapi", "Depends"), ("mcp", "Resolve")}


def is_path(kind: type) -> bool:
    """Return True for a `pathlib` path type."""
    # A program that uses a path has imported pathlib already.
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and issubclass(kind, pathlib.PurePath)


def adapter_of(kind: type) -> Any:
    """Return pydantic's decoder of a type: a model itself, an adapter for other types."""
    if as_model(kind) is not None:
        return kind
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not hasattr(kind, "__get_pydantic_core_schema__"):
        return None
    return pydantic.TypeAdapter(kind)


def require_type(value: Any, kind: type) -> Any:
    """Return the value unchanged if it is an instance of `kind`.

    Raises:
        TypeError: The value has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
