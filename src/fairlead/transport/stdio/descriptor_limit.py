"""The limit of open files: raised for this process, restored for the servers that it starts.

A server on stdio needs five descriptors, and the usual soft limit is 1024. Programs that use
`select()` or close every possible descriptor misbehave with a high limit, so servers get the
original limit.
"""

import contextlib
import sys

__all__ = ["raise_descriptor_limit", "restore_descriptor_limit"]

HIGHEST = 65_536  # highest limit that is set; hard limits can be as high as a billion

_raised: tuple[int, int] | None = None  # the soft limit before and after it was raised


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, at most to `HIGHEST`.

    Only programs that Fairlead runs call this, because the limit applies to the whole process.
    """
    global _raised
    with contextlib.suppress(ImportError, OSError, ValueError):  # not POSIX, or not permitted
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = HIGHEST if hard == resource.RLIM_INFINITY else min(hard, HIGHEST)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _raised = soft, wanted


def restore_descriptor_limit(pid: int) -> None:
    """Give a child that was just started the limit that this process had at first.

    A child that has already set its own limit keeps it. (A `preexec_fn` would set the limit
    before the program starts, but needs `fork` instead of `vfork`, and is not safe with threads.)
    """
    # macOS cannot change the limits of another process.
    if _raised is None or sys.platform != "linux":
        return
    import resource

    original, raised = _raised
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if soft == raised:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (original, hard))
