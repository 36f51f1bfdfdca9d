"""Parsers for configuration files: JSON with comments, TOML and YAML."""

import contextlib
import json
import re
import tomllib
from base64 import b64encode
from collections import Counter
from datetime import date, time
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from ...errors import ConfigError
from ...limits import CONFIG_DEPTH
from .duplicate_keys import line_and_column, nodes_of, nodes_of_json, reject_duplicate_keys

__all__ = ["Document", "Format", "format_of", "parse", "plain_json"]

# Python refuses to convert integers of more than 4,300 digits to text.
_MAX_BITS = 14_000

Format: TypeAlias = Literal["json", "toml", "yaml"]

_ENDINGS: dict[str, Format] = {"toml": "toml", "yaml": "yaml", "yml": "yaml"}


class Document(Struct, frozen=True):
    """A parsed file: its values, and its text, in which line numbers are looked up."""

    path: str
    data: dict[str, Any]
    text: str
    format: Format

    def line_of(self, name: str, raw: object, nth: int = 0) -> int:
        """Return the line where an entry starts, or 1 if it is unknown."""
        match self.format:
            case "json":
                return _line_in_json(self.text, name, raw)
            case "toml":
                return _line_in_toml(self.text, name, nth)
            case "yaml":
                return _line_in_yaml(self.text, name)

    # The values may be secrets, and a repr may be written to logs.
    def __repr__(self) -> str:
        return f"<Document {self.path}>"


def format_of(path: str) -> Format:
    """Return the format that belongs to the extension of a file."""
    return _ENDINGS.get(path.rpartition(".")[2].lower(), "json")


def parse(
    path: str, content: bytes, format: Format | None = None, *, strict: bool = True
) -> Document:
    """Parse the content of a file into JSON types; all keys are strings.

    `strict=False` is for other programs' files. It accepts duplicate keys, using the last value
    (TOML forbids duplicates), and converts dates to strings. A strict file keeps its dates, so that
    an error message can contain the position of a date that is not allowed.

    Raises:
        ConfigError: The text is invalid, is not a map, has a duplicate key or exceeds a limit. The
            error has the line, if it is known.
    """
    kind = format or format_of(path)
    text = _decode(path, content)
    if not text.strip():
        return Document(path, {}, text, kind)
    try:
        data, text = _READERS[kind](path, text, strict)
    except RecursionError:
        raise _too_deep(path) from None
    data = _plain(path, data, strict)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        reason = f"expected a map, not {_kind(data)}"
        raise ConfigError(reason, path=path, line=1)
    return Document(path, data, text, kind)


def _decode(path: str, content: bytes) -> str:
    encoding = "utf-8-sig"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"  # PowerShell writes UTF-16 with a byte order mark
    elif b"\0" in content:
        raise ConfigError("the file is binary", path=path, line=1)
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigError("the file is not UTF-8", path=path, line=line) from None


def _plain(path: str, value: Any, strict: bool, depth: int = 0) -> Any:
    """Convert a parsed value to JSON types.

    Later code (sorting, digests, `--json`) relies on string keys and on values that can be compared
    and encoded.

    Raises:
        ConfigError: The value is nested more deeply than any real configuration, contains itself,
            is too large a number, or is binary or a set in a strict file.
    """
    if depth > CONFIG_DEPTH.value:
        CONFIG_DEPTH.hit()
        raise _too_deep(path)
    if isinstance(value, dict):
        return {str(key): _plain(path, one, strict, depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(path, one, strict, depth + 1) for one in value]
    if isinstance(value, bytes | set | frozenset):
        if strict:
            raise ConfigError("a value is binary or a set: use a string or a list", path=path)
        # Sorted, because the iteration order of a set changes with each run.
        return b64encode(value).decode() if isinstance(value, bytes) else sorted(map(str, value))
    if isinstance(value, date | time):  # `datetime` is a subclass of `date`
        return value if strict else value.isoformat()
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ConfigError("a number is too large", path=path)
    return value


def _too_deep(path: str) -> ConfigError:
    return ConfigError("the file is nested too deeply", path=path, line=1)


def _read_json(path: str, text: str, strict: bool) -> tuple[Any, str]:
    try:
        # Plain JSON is tried first: most files are plain, and some are large.
        return _values(path, text, strict), text
    except ValueError:
        text = plain_json(text)
    if not text.strip():
        return {}, text
    try:
        return _values(path, text, strict), text
    except json.JSONDecodeError as exc:
        reason = f"not valid JSON: {exc.msg}"
        raise ConfigError(reason, path=path, line=exc.lineno, column=exc.colno) from None
    except ValueError as exc:  # the integer has more than 4,300 digits
        raise ConfigError(f"not valid JSON: {exc}", path=path, line=1) from None


def _values(path: str, text: str, strict: bool) -> Any:
    repeated: str | None = None

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        made = dict(pairs)
        if repeated is None and len(made) < len(pairs):
            repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        return made

    values = json.loads(text, object_pairs_hook=members if strict else None)
    if repeated is not None:
        reject_duplicate_keys(path, nodes_of_json(text))
        # Raised without a position, because YAML cannot express some JSON, such as very long keys.
        reason = f"duplicate key {repeated[:100]!r}: remove or rename one of them"
        raise ConfigError(reason, path=path)
    return values


# JSON with comments and trailing commas

# Comments and trailing commas are blanked instead of parsed by a library, which would be slower and
# report no line numbers. Strings are matched first, so that their content is never changed.
_TOKEN = re.compile(
    r"""(?s) "(?:[^"\\]++|\\.)*+"?+      # a string, perhaps one that never ends
      | //[^\n]*+
      | /\*.*?(?:\*/|\Z)
      | ,
      | [^\s",/]++                        # anything else
      | /""",
    re.VERBOSE,
)


def plain_json(text: str) -> str:
    """Convert JSONC to plain JSON, keeping every character at its line and column.

    Invalid text stays invalid, so that the JSON parser reports it.
    """
    pieces: list[str] = []
    done = 0
    comma = -1  # index of the last comma if only comments follow it
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if token[0].startswith(("//", "/*")):
            pieces += (text[done : token.start()], re.sub(r"[^\r\n]", " ", token[0]))
            done = token.end()
        elif first == ",":
            comma = len(pieces)
            pieces += (text[done : token.start()], ",")
            done = token.end()
        else:
            if comma >= 0 and first in "]}":
                pieces[comma + 1] = " "
            comma = -1
    pieces.append(text[done:])
    return "".join(pieces)


# The running time of `tomllib` grows with the square of the number of parts in a dotted key.
_DEEP_KEY = re.compile(
    rf"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{CONFIG_DEPTH.value}}}"""
)


def _read_toml(path: str, text: str, strict: bool) -> tuple[Any, str]:
    if _DEEP_KEY.search(text):
        CONFIG_DEPTH.hit()
        raise _too_deep(path)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as exc:
        where = re.search(r" \(at line (\d+), column (\d+)\)", str(exc))
        end = line_and_column(text, len(text))
        line, column = (int(where[1]), int(where[2])) if where else end
        # The parentheses repeat the position, which the error has as attributes.
        reason = str(exc).partition(" (at ")[0]
        raise ConfigError(
            f"not valid TOML: {reason}", path=path, line=line, column=column
        ) from None


def _read_yaml(path: str, text: str, strict: bool) -> tuple[Any, str]:
    import yaml  # type: ignore[import-untyped]  # the package has no type annotations

    try:
        _refuse_bombs(yaml, path, text)
        if strict:
            reject_duplicate_keys(path, nodes_of(text))
        return yaml.load(text, Loader=_loader(strict)), text
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, None)
        # Quoted text comes from the file and may contain secrets.
        reason = re.sub(r"\s*'[^']{2,}'", "", getattr(exc, "problem", None) or "unreadable")
        raise ConfigError(
            f"not valid YAML: {reason}", path=path, line=line, column=column
        ) from None
    except (ValueError, TypeError) as exc:  # nonexistent dates, keys that are lists
        raise ConfigError(f"not valid YAML: {type(exc).__name__}", path=path, line=1) from None


@cache
def _loader(strict: bool = False) -> Any:
    """Return the safe loader, in its C version if available, which is ten times as fast.

    Keys are always strings, as written in the file: `on`, `1` and `null` are names. Unless
    `strict`, dates are strings too.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # the base class has no type annotations
        yaml_implicit_resolvers: ClassVar = {
            first: [one for one in resolvers if strict or one[0] != _TIMESTAMP]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
            if not isinstance(node, yaml.MappingNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "expected a map", node.start_mark
                )
            self.flatten_mapping(node)
            made = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, "a key must not be a list or a map", key.start_mark
                    )
                made[key.value] = self.construct_object(value, deep=deep)
            return made

    return Loader


_MAX_ALIASES = 30  # maximum number of aliases in a YAML file
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


def _refuse_bombs(yaml: Any, path: str, text: str) -> None:
    """Raise `ConfigError` for many aliases or deep nesting, before any value is built.

    A few hundred bytes of nested aliases expand to gigabytes, and a hundred thousand brackets
    overflow the stack of the C loader.
    """
    aliases = depth = 0
    for event in yaml.parse(text, Loader=_loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > CONFIG_DEPTH.value:
                CONFIG_DEPTH.hit()
                raise _too_deep(path)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > _MAX_ALIASES:
                raise ConfigError(f"more than {_MAX_ALIASES} aliases", path=path, line=1)


_READERS = {"json": _read_json, "toml": _read_toml, "yaml": _read_yaml}


_COLON = re.compile(r"\s*+:\s*+")


def _line_in_json(text: str, name: str, raw: object) -> int:
    """Return the line of the key `name` whose value equals `raw`, without creating a parse tree."""
    decoder = json.JSONDecoder()
    for spelled in {json.dumps(name, ensure_ascii=False), json.dumps(name)}:
        # `find` is used, because compiling a pattern for each name would take most of the time.
        start = text.find(spelled)
        while start >= 0:
            if colon := _COLON.match(text, start + len(spelled)):
                with contextlib.suppress(ValueError):
                    if decoder.raw_decode(text, colon.end())[0] == raw:
                        return text.count("\n", 0, start) + 1
            start = text.find(spelled, start + 1)
    named = re.search(r'"name"\s*+:\s*+' + re.escape(json.dumps(name, ensure_ascii=False)), text)
    return text.count("\n", 0, named.start()) + 1 if named else 1


def _line_in_toml(text: str, name: str, nth: int) -> int:
    quoted = re.escape(name)
    table = re.compile(
        rf"""(?m)^\s*\[\s*[\w.-]+\s*\.\s*(?:{quoted}|"{quoted}"|'{quoted}')\s*[\].]"""
    )
    if found := table.search(text):
        return text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1
    arrays = [m.start() for m in re.finditer(r"(?m)^[ \t]*\[\[", text)]
    return text.count("\n", 0, arrays[nth]) + 1 if nth < len(arrays) else 1


def _line_in_yaml(text: str, name: str) -> int:
    quoted = rf"""(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')"""
    key = re.compile(
        rf"(?m)^[ \t]*(?:{quoted}[ \t]*:(?:\s|$)|(?:-[ \t]+)?name:[ \t]+{quoted}[ \t]*$)"
    )
    found = key.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", bool: "a boolean"}.get(type(value), "a number")
