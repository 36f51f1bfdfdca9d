"""The number of examples for each property test."""

from hypothesis import settings

__all__ = ["examples"]


def examples(full: int) -> int:
    """Return `full` in CI and in `make test-all`, and a fraction of it in `make test`."""
    quick = settings.default.max_examples
    return full if quick >= settings.get_profile("full").max_examples else max(quick, full // 8)
