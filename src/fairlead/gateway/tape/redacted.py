"""What stands on a tape where a secret stood may have been anything."""

import re
from functools import lru_cache
from typing import Any

from ...observe.redact import REDACTED

__all__ = ["is_redacted_form"]


def is_redacted_form(recorded: str, given: Any) -> bool:
    """Whether a text of a tape may have been made from this value."""
    if recorded == REDACTED:
        return True
    return isinstance(given, str) and _pattern(recorded).fullmatch(given) is not None


@lru_cache(maxsize=256)
def _pattern(recorded: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, recorded.split(REDACTED))), re.DOTALL)
