"""Resources: what a server has to read, under fixed URIs and under templates of URIs."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from ...errors import RpcError
from ...interceptor import Handler
from ...protocol.types.resources import Resource, ResourceTemplate
from ..context.context import Context
from ..execution.worker_threads import WorkerThreads
from .paged_list import PagedList
from .text_arguments import TextSignature
from .tool_entry import is_asynchronous

if TYPE_CHECKING:
    from ...protocol.uri_templates.template import UriTemplate

__all__ = ["CacheHints", "ResourceEntry", "Resources", "file_resource"]

ContentProvider = Callable[..., Any]  # sync or async; returns text, bytes or content objects


class CacheHints(Struct, frozen=True):
    """How long, in seconds, and for whom an answer may be kept."""

    ttl: float = 0.0
    scope: str = "private"

    def __post_init__(self) -> None:
        if self.scope not in ("private", "public"):
            raise ValueError(f"cache_scope is 'private' or 'public', not {self.scope!r}")
        if self.ttl < 0:
            raise ValueError(f"cache_ttl is a number of seconds, not {self.ttl!r}")

    def members(self) -> bytes:
        """As they stand in a stateless result."""
        return b'"ttlMs":%d,"cacheScope":"%b"' % (round(self.ttl * 1000), self.scope.encode())


class ResourceEntry(Struct):
    """A registered resource or template: its definition, and where its contents come from."""

    definition: Resource | ResourceTemplate
    provider: ContentProvider
    asynchronous: bool
    signature: TextSignature | None = None  # of a function; None: it is called without anything
    template: "UriTemplate | None" = None  # whose variables are the parameters of the function
    cache: CacheHints | None = None
    home: Handler | None = None  # of a mounted one: the server it belongs to

    @property
    def mime_type(self) -> str | None:
        value = self.definition.mime_type
        return None if value is UNSET else str(value)


class Resources:
    """Everything there is to read; one that has exactly this URI goes before any template."""

    def __init__(self, page_size: int, workers: WorkerThreads) -> None:
        self.fixed: PagedList[ResourceEntry] = PagedList(
            "resource", "resources/list", "resources", page_size
        )
        self.templates: PagedList[ResourceEntry] = PagedList(
            "resource template", "resources/templates/list", "resourceTemplates", page_size
        )
        self._workers = workers

    def __len__(self) -> int:
        return len(self.fixed) + len(self.templates)

    def register(
        self,
        function: ContentProvider,
        uri: str,
        *,
        name: str,
        title: str | None,
        description: str | None,
        mime_type: str | None,
        cache: CacheHints | None,
        is_template: bool,
    ) -> None:
        """Add a resource, or a template of them, whose contents a function provides.

        The function takes the variables of a template, and may take a `Context`.

        Raises:
            ValueError: if the URI is taken, or a template cannot be parsed.
            TypeError: if variables and parameters do not agree.
        """
        template = _parse_template(uri) if is_template else None
        signature = TextSignature(function)
        variables = set[str]() if template is None else set(template.variables)
        unknown = [
            p.name for p in signature.parameters.values() if p.required and p.name not in variables
        ]
        if unknown:
            raise TypeError(f"{uri!r} has no variable for {', '.join(unknown)}")
        unused = sorted(variables - signature.parameters.keys())
        if unused and not signature.takes_any:
            raise TypeError(f"{uri!r}: the function takes no {', '.join(unused)}")
        facts: dict[str, Any] = {
            "name": name,
            "title": title or UNSET,
            "description": description or UNSET,
            "mime_type": mime_type or "text/plain",
        }
        definition = (
            Resource(uri=uri, **facts)
            if template is None
            else ResourceTemplate(uri_template=uri, **facts)
        )
        asynchronous = is_asynchronous(function)
        entry = ResourceEntry(definition, function, asynchronous, signature, template, cache)
        (self.fixed if template is None else self.templates).add(uri, entry)

    def find(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """Who serves this URI, with the values of its variables; the most specific of several."""
        entry = self.fixed.get(uri)
        if entry is not None:
            return entry, {}
        found = [
            (candidate.template.specificity, candidate, values)
            for candidate in self.templates.entries()
            if candidate.template is not None
            and (values := candidate.template.match(uri)) is not None
        ]
        best = max(found, key=lambda one: one[0], default=None)
        return None if best is None else best[1:]

    async def read(
        self,
        entry: ResourceEntry,
        values: dict[str, str],
        context: Context | None,
    ) -> Any:
        """Whatever the provider returns."""
        signature, given = entry.signature, dict[str, Any]()
        if signature is not None:
            given = signature.arguments(values, context)
        if entry.asynchronous:
            return await entry.provider(**given)
        value = await self._workers.run(lambda: entry.provider(**given))
        return await value if isinstance(value, Awaitable) else value


def _parse_template(uri: str) -> "UriTemplate":
    from ...protocol.uri_templates.template import UriTemplate  # loaded by servers with templates

    return UriTemplate(uri)


def not_found(uri: str, code: int) -> RpcError:
    return RpcError(code, f"Resource not found: {uri}", {"uri": uri})


def file_resource(path: str) -> tuple[str, ResourceEntry]:
    """SRV-05: a local file and its `file://` URI; text as text, everything else as bytes.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    import mimetypes  # with what they bring along, a tenth of a server's start-up
    from pathlib import Path

    file = Path(path).resolve(strict=True)
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    mime_type, _ = mimetypes.guess_type(file.name)

    def read() -> str | bytes:
        data = file.read_bytes()
        if b"\0" in data:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    uri = file.as_uri()
    definition = Resource(
        uri=uri,
        name=file.name,
        mime_type=mime_type or "application/octet-stream",
        size=file.stat().st_size,
    )
    return uri, ResourceEntry(definition, read, False)
