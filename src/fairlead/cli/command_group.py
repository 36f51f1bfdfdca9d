"""Command groups: dispatch to a command, and the help text that lists the commands."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from .framework.command_errors import CommandError, UsageError, styled

__all__ = ["Commands", "run_one"]

_HELP = ("-h", "--help", "help")

Commands = Mapping[str, tuple[str, str]]  # name -> (description, module in `cli`)


def run_one(
    group: str,
    commands: Commands,
    about: str,
    argv: Sequence[str],
    *,
    examples: str = "",
    find_elsewhere: Callable[[str], str | None] | None = None,
) -> int:
    """Run a command in a group: the function `run_NAME` or `run` of its module. The group "" is
    `fairlead` itself.

    `find_elsewhere` returns the full command line for a command that belongs to another group.

    Raises:
        CommandError: The command is unknown, or it failed.
    """
    name = argv[0] if argv else "--help"
    if name in _HELP:
        topic = next((one for one in argv if one not in _HELP), None)
        if topic is None:
            return _help(f"fairlead {group}".strip(), commands, about, examples)
        name, argv = topic, (topic, "--help")
    if name not in commands:
        raise _unknown(group, commands, name, find_elsewhere and find_elsewhere(name))
    module = import_module(f"{__package__}.{commands[name][1]}")
    function = getattr(module, f"run_{name}", None) or module.run
    code: int = function(argv[1:])
    return code


def _unknown(group: str, commands: Commands, name: str, elsewhere: str | None) -> CommandError:
    from ..suggestions import close_matches

    program = f"fairlead {group}".strip()
    if name.startswith("-"):
        hint = f"`{program} --help` lists the commands and options"
        return UsageError(f"Unknown option {name!r}", hint=hint)
    near = close_matches(name, commands)
    hint = f"expected one of {', '.join(commands)}"
    if near:
        hint = f"did you mean `{program} {near[0]}`?"
    if elsewhere is not None:
        hint = f"did you mean `{elsewhere}`?"
    return UsageError(f"Unknown command '{f'{group} {name}'.strip()}'", hint=hint)


def _help(program: str, commands: Commands, about: str, examples: str) -> int:
    width = max(map(len, commands))
    print(f"{styled('usage:', '1')} {program} COMMAND ...\n\n{about}\n")
    print(styled("commands:", "1"))
    for name, (does, _) in commands.items():
        print(f"  {styled(name.ljust(width), '36')}  {does}")
    if examples:
        print(f"\n{styled('examples:', '1')}\n{examples}", end="")
    print(f"\nRun `{program} COMMAND --help` for the options of a command.")
    return 0
