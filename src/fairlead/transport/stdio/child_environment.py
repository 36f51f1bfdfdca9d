"""The environment of child processes: inherited variables, without our own secrets."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

__all__ = ["InheritEnv", "child_environment", "withhold"]

InheritEnv = Literal["all", "safe"] | Sequence[str]

_SAFE = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR"}
_SAFE_WINDOWS = {"APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES"}
_SAFE_WINDOWS |= {"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"}

# Global, because it applies to the environment of this process.
_withheld: set[str] = set()


def withhold(secrets: Iterable[str]) -> None:
    """Stop child processes from inheriting variables with these values, unless their entry names
    the variables.
    """
    _withheld.update(secrets)


def child_environment(
    extra: Mapping[str, str] | None = None, inherit: InheritEnv = "all"
) -> dict[str, str]:
    """Return the environment of a child process: all or a part of ours, updated with `extra`.

    Settings and keys of this process (`FAIRLEAD_*`) and of its tracing (`OTEL_*`) are never
    inherited.
    """
    inherited = dict(os.environ)
    names = _SAFE | (_SAFE_WINDOWS if os.name == "nt" else set())
    if inherit == "safe":
        inherited = {k: v for k, v in inherited.items() if k in names or k.startswith("LC_")}
    elif inherit == "all":
        # Safe variables are kept, because a short token may equal their value, such as a user name.
        inherited = {k: v for k, v in inherited.items() if k in names or v not in _withheld}
    else:
        inherited = {k: v for k, v in inherited.items() if k in inherit}
    kept = {k: v for k, v in inherited.items() if not k.startswith(("FAIRLEAD_", "OTEL_"))}
    # MCP messages are UTF-8; a Python server would otherwise use the encoding of the locale.
    return {"PYTHONUTF8": "1", **kept, **(extra or {})}
