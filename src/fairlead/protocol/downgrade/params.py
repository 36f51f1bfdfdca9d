"""Conversion of request and notification params to the form of a revision."""

from functools import cache
from typing import Final

from ..json_edit import Encoded, Rewrite, apply, edit_object, within, without, without_keys
from ..revisions import Revision
from .capabilities import rewrite_capabilities
from .client_requests import edit_elicitation, edit_sampling
from .known_members import implementation_members, meta_members

__all__ = ["downgrade_params"]


_ANY: Final = ""  # key for methods that are not in the table


def downgrade_params(method: str, params: Encoded, revision: Revision) -> Encoded:
    """Return the params of a request or notification in the form of `revision`.

    Raises:
        DowngradeError: The revision lacks the elicitation's form or mode, or tools in sampling.
    """
    plan = _params(revision)
    return apply(plan.get(method, plan[_ANY]), params)


@cache
def _params(revision: Revision) -> dict[str, Rewrite | None]:
    plain = without_keys("_meta", meta_members(revision))
    task = without({"task": revision.core_tasks})
    return {
        _ANY: edit_object(plain),
        "initialize": edit_object(
            plain,
            within("clientInfo", edit_object(without(implementation_members(revision)))),
            within("capabilities", rewrite_capabilities(revision)),
        ),
        "tools/call": edit_object(plain, task),
        "completion/complete": edit_object(
            plain,
            without({"context": revision.completion_context}),
            within("ref", edit_object(without({"title": revision.titles}))),
        ),
        "notifications/progress": edit_object(
            plain, without({"message": revision.progress_message})
        ),
        "sampling/createMessage": edit_object(plain, task, edit_sampling(revision)),
        "elicitation/create": edit_object(plain, edit_elicitation(revision)),
    }
