"""One item of a server's list: decoded once, and encoded once per revision and name."""

from msgspec import Raw

from ...limits import ITEM_BYTES
from ...protocol.downgrade.results import downgrade_result
from ...protocol.headers import ParamHeader
from ...protocol.json_edit import encoded, members_of, string_of
from ...protocol.param_headers import read_param_headers
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...protocol.uri_templates.template import UriTemplate
from ...wire import single_line

__all__ = ["CatalogItem", "read_item"]


class CatalogItem:
    """An item of a list, as one server sent it."""

    __slots__ = ("_param_headers", "_template", "_written", "key", "kind", "server", "text")

    def __init__(self, server: str, kind: ListKind, key: str, text: bytes) -> None:
        self.server = server
        self.kind = kind
        self.key = key  # the server's own name, or the URI
        self.text = text
        self._written: dict[tuple[Revision, str], bytes] = {}
        self._template: UriTemplate | str | None = None
        self._param_headers: tuple[ParamHeader, ...] | None = None

    def written(self, revision: Revision, shown: str) -> bytes:
        """Return the encoded item for a revision, under its displayed name."""
        text = self._written.get((revision, shown))
        if text is None:
            # Cleared at a limit, because entries for removed views are never deleted one by one.
            if len(self._written) >= 4 * len(Revision):
                self._written.clear()
            start = b'{"%b":[' % self.kind.value.encode()
            alone = start + bytes(self.renamed(shown)) + b"]}"
            text = downgrade_result(self.kind.method, alone, revision)[len(start) : -2]
            self._written[revision, shown] = text
        return text

    def renamed(self, shown: str) -> Raw:
        """Return the item with another name."""
        if shown == self.key:
            return Raw(self.text)
        members = members_of(self.text)
        assert members is not None
        members["name"] = encoded(shown)
        return encoded(members)

    @property
    def param_headers(self) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that are also sent as headers; none if the schema is invalid."""
        if self._param_headers is None:
            try:
                self._param_headers = read_param_headers(self.text)
            except (ValueError, RecursionError):
                self._param_headers = ()
        return self._param_headers

    @property
    def specificity(self) -> tuple[int, ...]:
        """A sort key for templates: more literal text first, invalid templates last."""
        template = self.template
        if isinstance(template, UriTemplate):
            return (1, *template.specificity)
        return (0, len(template))

    def matches(self, uri: str) -> bool:
        """Return True if a URI matches this template."""
        template = self.template
        if isinstance(template, UriTemplate):
            return template.match(uri) is not None
        return bool(template) and uri.startswith(template)

    @property
    def template(self) -> UriTemplate | str:
        """The parsed template; only its literal beginning if its expressions are not supported."""
        if self._template is None:
            try:
                self._template = UriTemplate(self.key)
            except ValueError:
                self._template = self.key.partition("{")[0]
        return self._template


def read_item(server: str, kind: ListKind, raw: Raw) -> CatalogItem | None:
    """Decode an item; return None if it is too large, not an object, unnamed, or not UTF-8."""
    text = bytes(raw)
    if len(text) > ITEM_BYTES.value:
        ITEM_BYTES.hit()
        return None
    members = members_of(text)
    key = None if members is None else string_of(members.get(kind.key))
    if not key:
        return None
    try:
        # Checked here, because members other than the name are never decoded.
        text.decode()
    except UnicodeDecodeError:
        return None
    return CatalogItem(server, kind, key, single_line(text).strip())
