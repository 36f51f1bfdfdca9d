"""Catalogs with a few items, and catalog pages as plain data."""

import json
from typing import Any

from msgspec import Raw

from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.protocol.targets.targets import Target
from fairlead.wire import to_json

ALL = View.everything()


def own(found: Target | None) -> tuple[str | None, str]:
    assert found is not None
    return found.server, found.own


def raw(**members: Any) -> Raw:
    return Raw(to_json(members))


def tools(*names: str, **more: Any) -> list[Raw]:
    return [raw(name=name, inputSchema={"type": "object"}, **more) for name in names]


def resources(*uris: str) -> list[Raw]:
    return [raw(uri=uri, name="some") for uri in uris]


def templates(*texts: str) -> list[Raw]:
    return [raw(uriTemplate=text, name="some") for text in texts]


def page(
    catalog: MergedCatalog,
    kind: ListKind = ListKind.TOOLS,
    view: View = ALL,
    revision: Revision = NEWEST,
    cursor: str | None = None,
) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(b"{" + catalog.page(kind, view, revision, cursor) + b"}")
    return members


def fleet() -> MergedCatalog:
    catalog = MergedCatalog()
    catalog.put("git", ListKind.TOOLS, tools("push", "log"))
    catalog.put("time", ListKind.TOOLS, tools("now"))
    return catalog
