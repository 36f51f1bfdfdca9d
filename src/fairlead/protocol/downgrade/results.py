"""Conversion of results to the form of a revision, and of older results for stateless clients."""

from functools import cache
from typing import Any, Final

from msgspec import Raw

from ..caller import SERVER_INFO_KEY
from ..json_edit import (
    Edit,
    Encoded,
    RawMembers,
    Rewrite,
    all_of,
    apply,
    each,
    edit_object,
    encoded,
    members_of,
    same_type,
    string_of,
    within,
    without,
    without_keys,
)
from ..methods import METHODS
from ..revisions import Revision
from .capabilities import rewrite_capabilities
from .client_requests import rewrite_sampling_content
from .downgrade_content import (
    edit_resource,
    edit_tool_output,
    rewrite_content,
    rewrite_contents,
    rewrite_tool,
)
from .downgrade_error import DowngradeError
from .known_members import implementation_members, meta_members, named_members

__all__ = ["CACHEABLE", "downgrade_result", "upgrade_result"]


CACHEABLE: Final = frozenset(row.name for row in METHODS if row.cacheable)
"""Methods whose results have a time to live, in the stateless revisions."""

_ANY: Final = ""  # key for methods that are not in the table


def downgrade_result(method: str, result: Encoded, revision: Revision) -> Encoded:
    """Return the result of a request in the form of `revision`.

    Raises:
        DowngradeError: The result asks for input or names a task, for which handshake revisions use
            other messages; or a sampled message has several blocks.
    """
    plan = _results(revision)
    return apply(plan.get(method, plan[_ANY]), result)


def upgrade_result(
    method: str, result: Encoded, *, server_info: Raw | bytes | None = None
) -> Encoded:
    """Add the members that a stateless client expects to the result of a handshake-era server.

    Existing members are kept, and a cacheable result gets a time to live of zero. Call
    `downgrade_result` first, which removes the members that only handshake revisions have.
    """
    members = members_of(result)
    if members is None:
        return result
    added: dict[str, Any] = {}
    if "resultType" not in members:
        added["resultType"] = "complete"
    if method in CACHEABLE and string_of(members.get("resultType")) in (None, "complete"):
        fresh = {"ttlMs": 0, "cacheScope": "private"}
        added |= {name: value for name, value in fresh.items() if name not in members}
    meta = members_of(members.get("_meta", Raw(b"{}")))
    if server_info is not None and meta is not None and SERVER_INFO_KEY not in meta:
        added["_meta"] = {**meta, SERVER_INFO_KEY: Raw(server_info)}
    return same_type(result, encoded({**members, **added})) if added else result


@cache
def _results(revision: Revision) -> dict[str, Rewrite | None]:
    plain = all_of(_complete(revision), without_keys("_meta", meta_members(revision)))
    kept = without({"ttlMs": revision.stateless, "cacheScope": revision.stateless})
    cached = all_of(plain, kept)
    prompt = edit_object(
        without(named_members(revision)),
        within("arguments", each(edit_object(without({"title": revision.titles})))),
    )
    contents = each(rewrite_contents(revision))
    resources = each(edit_object(edit_resource(revision)))
    return {
        _ANY: edit_object(plain),
        "initialize": edit_object(
            plain,
            within("serverInfo", edit_object(without(implementation_members(revision)))),
            within("capabilities", rewrite_capabilities(revision)),
        ),
        "tools/list": edit_object(cached, within("tools", each(rewrite_tool(revision)))),
        "tools/call": edit_object(plain, edit_tool_output(revision)),
        "prompts/list": edit_object(cached, within("prompts", each(prompt))),
        "prompts/get": edit_object(
            plain,
            within("messages", each(edit_object(within("content", rewrite_content(revision))))),
        ),
        "resources/list": edit_object(cached, within("resources", resources)),
        "resources/templates/list": edit_object(cached, within("resourceTemplates", resources)),
        "resources/read": edit_object(cached, within("contents", contents)),
        "sampling/createMessage": edit_object(
            plain, within("content", rewrite_sampling_content(revision))
        ),
        "roots/list": edit_object(plain, within("roots", contents)),
    }


def _complete(revision: Revision) -> Edit | None:
    """Build an edit that removes `resultType`,
    and raises `DowngradeError` unless it is `complete`.
    """
    if revision.stateless:
        return None

    def edit(members: RawMembers) -> bool:
        kind = members.pop("resultType", None)
        if kind is not None and string_of(kind) != "complete":
            raise DowngradeError(
                f"MCP {revision} supports only complete results, not {string_of(kind)!r}"
            )
        return kind is not None

    return edit
