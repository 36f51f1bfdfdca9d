"""Command lines in hints, quoted so that the pasted command runs exactly as shown."""

import os
import shlex
import sys
from collections.abc import Iterable

from ...observe.safe_display import visible

__all__ = ["our_program", "quoted", "started_command", "suggest", "suggest_any"]


def suggest(*words: str, operands: Iterable[str] = ()) -> str:
    """Return a command line of Fairlead in backticks, with the program as the user started it.

    `operands` are words from outside Fairlead, such as names and paths. If one of them looks
    like an option, `--` is inserted before it.
    """
    return f"`{suggest_any(*started_command(), *words, operands=operands)}`"


def suggest_any(*words: str, operands: Iterable[str] = ()) -> str:
    """Return a command line for any program, quoted and in backticks."""
    given = list(operands)
    end = ["--"] if any(word.startswith("-") for word in given) else []
    return " ".join(map(quoted, [*words, *end, *given]))


def our_program() -> str:
    """Return the absolute path of `fairlead`,
    for desktop programs that do not have a shell's PATH.
    """
    import shutil
    from pathlib import Path

    script = Path(sys.executable).with_name("fairlead")
    return str(script) if script.exists() else shutil.which("fairlead") or "fairlead"


def started_command(*, absolute: bool = False) -> list[str]:
    """Return the command words that start this program again, as the user started it.

    `absolute` is for programs that do not have a shell's PATH.
    """
    import shutil

    def program(name: str, path: str) -> str:
        found = shutil.which(name)
        is_ours = found is not None and os.path.realpath(found) == os.path.realpath(path)
        return name if is_ours and not absolute else path

    # uvx runs the script in an environment in its cache, which may be removed later.
    uv = os.environ.get("UV")
    if uv and f"{os.sep}archive-v" in sys.prefix:
        return [program("uvx", os.path.join(os.path.dirname(uv), "uvx")), "fairlead"]
    # `sys.argv` cannot be used, because `fairlead serve FILE` replaces it for the file.
    script = sys.orig_argv[1] if len(sys.orig_argv) > 1 else ""
    if os.path.basename(script).startswith("fairlead") and os.path.isfile(script):
        return [program("fairlead", os.path.abspath(script))]
    return [program("python", sys.executable), "-m", "fairlead"]


def quoted(word: str) -> str:
    """Quote one word for a shell; invisible characters are escaped for bash and zsh."""
    if visible(word) == word:
        return shlex.quote(word)
    return f"$'{''.join(map(_spelled, word))}'"


def _spelled(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    if sign.isascii() and sign.isprintable():
        return sign
    is_byte = "\udc80" <= sign <= "\udcff"  # a byte in a path that is not valid UTF-8
    encoded = sign.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)
