"""The reference of the Python API: every public name of the documented modules."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial

__all__ = ["API_TABLES", "DOCUMENTED_MODULES"]

# Modules whose `__all__` is documented, by the name of their generated part. A name that several of
# them export is documented with the first one.
DOCUMENTED_MODULES: Mapping[str, str] = {
    "api-fairlead": "fairlead",
    "api-server": "fairlead.server",
    "api-client": "fairlead.client",
    "api-manager": "fairlead.manager",
    "api-gateway": "fairlead.gateway",
    "api-interceptor": "fairlead.interceptor",
    "api-actions": "fairlead.policy.actions",
    "api-rules": "fairlead.policy.rules",
    "api-tape": "fairlead.recording.tape",
    "api-replay": "fairlead.recording.replay",
    "api-journal": "fairlead.recording.journal",
    "api-errors": "fairlead.errors",
}


def _directives(part: str) -> str:
    """Return a mkdocstrings directive for each name that is documented with this module."""
    seen: set[int] = set()
    for name, module in DOCUMENTED_MODULES.items():
        loaded = importlib.import_module(module)
        own = [one for one in loaded.__all__ if id(getattr(loaded, one)) not in seen]
        if name == part:
            return "\n\n".join(f"::: {module}.{one}" for one in own) + "\n"
        seen |= {id(getattr(loaded, one)) for one in own}
    raise KeyError(part)


API_TABLES: Mapping[str, Callable[[], str]] = {
    part: partial(_directives, part) for part in DOCUMENTED_MODULES
}
