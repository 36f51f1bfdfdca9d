"""Registry of the resources of a server: fixed URIs and URI templates."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from ...errors import RpcError
from ...interceptor import Handler
from ...protocol.types.resources import Resource, ResourceTemplate
from ..results.media import as_text
from .paged_list import PagedList
from .text_arguments import TextSignature
from .tool_entry import is_asynchronous

if TYPE_CHECKING:
    from ...protocol.uri_templates.template import UriTemplate

__all__ = ["CacheHints", "ResourceEntry", "Resources", "file_resource"]

ContentProvider = Callable[..., Any]  # sync or async; returns text, bytes or content objects


class CacheHints(Struct, frozen=True):
    """Cache lifetime in seconds, and the scope in which a result may be cached."""

    ttl: float = 0.0
    scope: str = "private"

    def __post_init__(self) -> None:
        if self.scope not in ("private", "public"):
            raise ValueError(f"cache_scope must be 'private' or 'public', not {self.scope!r}")
        if self.ttl < 0:
            raise ValueError(f"cache_ttl must be 0 or more seconds, not {self.ttl!r}")

    def members(self) -> bytes:
        """Return the cache members of a stateless result, as JSON without braces."""
        return b'"ttlMs":%d,"cacheScope":"%b"' % (round(self.ttl * 1000), self.scope.encode())


class ResourceEntry(Struct):
    """A registered resource or template: its definition and its content provider."""

    definition: Resource | ResourceTemplate
    provider: ContentProvider
    asynchronous: bool
    signature: TextSignature | None = None  # None: the provider is called without arguments
    # template whose variables are the parameters of the function
    template: "UriTemplate | None" = None
    cache: CacheHints | None = None
    home: Handler | None = None  # handler of the inner server, for a mounted resource
    scopes: tuple[str, ...] = ()  # scopes that a caller's token must have


class Resources:
    """All resources of a server. A fixed URI takes precedence over templates."""

    def __init__(self, page_size: int) -> None:
        self.fixed: PagedList[ResourceEntry] = PagedList(
            "resource", "resources/list", "resources", page_size
        )
        self.templates: PagedList[ResourceEntry] = PagedList(
            "resource template", "resources/templates/list", "resourceTemplates", page_size
        )

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
        scopes: Sequence[str] = (),
    ) -> None:
        """Register a resource or a template whose contents a function provides.

        The function takes the variables of the template and optionally a `Context`.

        Raises:
            ValueError: The URI is invalid or registered already.
            TypeError: The variables do not match the parameters of the function.
        """
        if ":" not in uri and not uri.startswith("{"):
            raise ValueError(f"invalid URI {uri!r}: expected scheme://path, such as data://{uri}")
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
            raise TypeError(f"{uri!r}: the function has no parameter {', '.join(unused)}")
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
        entry.scopes = tuple(scopes)
        (self.fixed if template is None else self.templates).add(uri, entry)

    def find(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """Return the entry of a URI and the values of its variables, or None.

        If several templates match, the most specific one is used.
        """
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

    def not_found(self, uri: str, code: int) -> RpcError:
        """Return the error about an unknown URI."""
        place = "resources/list or resources/templates/list" if self.templates else None
        return RpcError(
            code, f"Resource not found: {uri}{self.fixed.hint(uri, place)}", {"uri": uri}
        )


def _parse_template(uri: str) -> "UriTemplate":
    # Loaded on first use: not every server has templates.
    from ...protocol.uri_templates.template import UriTemplate

    return UriTemplate(uri)


def file_resource(path: str) -> tuple[str, ResourceEntry]:
    """Return the `file://` URI and the entry of a local file (SRV-05).

    UTF-8 text is read as text, all other content as bytes.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    # Imported here, because these modules take a tenth of a server's start-up time.
    import mimetypes
    from pathlib import Path

    file = Path(path).resolve(strict=True)
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    mime_type, _ = mimetypes.guess_type(file.name)

    def read() -> str | bytes:
        data = file.read_bytes()
        text = as_text(data)
        return data if text is None else text

    uri = file.as_uri()
    definition = Resource(
        uri=uri,
        name=file.name,
        mime_type=mime_type or "application/octet-stream",
        size=file.stat().st_size,
    )
    return uri, ResourceEntry(definition, read, False)
