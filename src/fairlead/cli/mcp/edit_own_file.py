"""Our own files, changed by a command: which one is meant, and what may go wrong."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from ...config.edit.own_file import ConfigFile
from ...errors import ConfigError
from ..framework.errors import CommandError
from ..framework.output import safe
from ..framework.parser import flag

__all__ = ["OURS", "own_file", "report_edit_errors"]


OURS = flag("--project", help="change .fairlead/mcp.json of the project, not your own file")


def own_file(options: Namespace) -> ConfigFile:
    """The user's file, or the project's."""
    return ConfigFile.of_nearest_project() if options.project else ConfigFile.of_user()


@contextmanager
def report_edit_errors(file: ConfigFile) -> Iterator[None]:
    """Raises: Failed: if the file cannot be changed, saying why."""
    try:
        yield
    except ConfigError as exc:
        raise CommandError(safe(str(exc))) from exc
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise CommandError(f"{file.path} cannot be changed: {why}") from exc
